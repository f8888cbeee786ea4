-- Jobs with a schedule may need others: their fires wait until all of these have succeeded.
ALTER TABLE jobs ADD COLUMN needs boolean NOT NULL DEFAULT false;
ALTER TABLE executions ADD COLUMN needs_by_at timestamptz;
CREATE INDEX executions_needs ON executions (needs_by_at) WHERE needs_by_at IS NOT NULL;
ALTER TABLE job_needs ADD COLUMN wait_s float8 CHECK (wait_s > 0);
ALTER TABLE job_needs ADD COLUMN fired_at timestamptz;

