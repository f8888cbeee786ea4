-- Jobs with a schedule may need others: their fires wait until all of these have succeeded.
ALTER TABLE jobs ADD COLUMN needs boolean NOT NULL DEFAULT false;
UPDATE jobs SET needs = true WHERE job_id IN (SELECT child_id FROM job_needs);
ALTER TABLE executions ADD COLUMN needs_by_at timestamptz;
CREATE INDEX executions_needs ON executions (needs_by_at) WHERE needs_by_at IS NOT NULL;
ALTER TABLE job_needs ADD COLUMN wait_s float8 CHECK (wait_s > 0);
ALTER TABLE job_needs ADD COLUMN fired_at timestamptz;

-- What people have done, written with the change itself; nothing of it changes again.
CREATE TABLE audit (
    audit_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   int NOT NULL REFERENCES tenants,
    at          timestamptz NOT NULL DEFAULT db_now(),
    actor       text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,
    name        text,
    reason      text,
    details     jsonb
);
CREATE INDEX audit_tenant ON audit (tenant_id, audit_id);
CREATE INDEX audit_subject ON audit (tenant_id, subject, audit_id);
CREATE INDEX audit_actor ON audit (tenant_id, actor, audit_id);
CREATE INDEX audit_action ON audit (tenant_id, action, audit_id);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'entries of % are never changed', TG_TABLE_NAME;
END $$;
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE ON audit EXECUTE FUNCTION refuse_change();

-- Runs by when they should have ended, and those of them that have not.
CREATE INDEX runs_sla ON runs (sla_at) WHERE sla_at IS NOT NULL;
CREATE INDEX runs_late ON runs (sla_at) WHERE sla_at IS NOT NULL AND finished_at IS NULL;

-- The dead letters of a run's steps are handled with the run's own.
ALTER TABLE dead_letters ADD COLUMN run_id uuid;
CREATE INDEX dead_letters_run ON dead_letters (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX dead_letters_acting ON dead_letters (tenant_id, job_id, fingerprint, created_at)
    WHERE state = 'open' AND run_id IS NULL;

-- What is kept long enough is found by when it ended.
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX backfills_ended ON backfills (ended_at) WHERE ended_at IS NOT NULL;
