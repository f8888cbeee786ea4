-- Statements that start executions read the suspended tenants: usually none, so the scan is of one empty page.
CREATE INDEX IF NOT EXISTS tenants_suspended ON tenants (tenant_id) WHERE suspended_at IS NOT NULL;
