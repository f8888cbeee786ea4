-- Jobs by the beginning of their names, in an order that is the same on every server: what a prefix matches is a range.
CREATE INDEX jobs_prefix ON jobs (tenant_id, name COLLATE "C") WHERE deleted_at IS NULL;
