-- Jobs that the scheduler has paused because their schedule exceeded its step budget: an alert reads them. Few or none.
CREATE INDEX jobs_too_costly ON jobs (tenant_id, name)
    WHERE deleted_at IS NULL AND pause_reason LIKE 'schedule too costly:%';
