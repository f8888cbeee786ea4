-- Suspension, deletion and quotas of tenants. A quota that is null is unlimited; `cap` limits running executions.
ALTER TABLE tenants
    ADD COLUMN suspended_at timestamptz,
    ADD COLUMN suspend_reason text,
    ADD COLUMN deleted_at timestamptz,
    ADD COLUMN max_jobs int CONSTRAINT tenants_max_jobs CHECK (max_jobs >= 0),
    ADD COLUMN max_queued int CONSTRAINT tenants_max_queued CHECK (max_queued >= 0),
    ADD COLUMN schedules_per_hour int CONSTRAINT tenants_schedules_per_hour CHECK (schedules_per_hour >= 0),
    ADD COLUMN min_interval_s float8 CONSTRAINT tenants_min_interval CHECK (min_interval_s > 0),
    ADD COLUMN end_required boolean NOT NULL DEFAULT false;
