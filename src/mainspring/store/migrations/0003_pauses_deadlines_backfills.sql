-- Pauses that end by themselves, deadlines, and backfills. Everything new is empty or null for what exists.

ALTER TABLE jobs
    ADD COLUMN paused_until timestamptz,
    ADD COLUMN pause_after int CHECK (pause_after > 0),
    ADD COLUMN start_by_s float8,
    ADD COLUMN finish_by_s float8,
    ADD COLUMN max_gap_s float8;
CREATE INDEX jobs_paused_until ON jobs (paused_until) WHERE paused_until IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_start_by ON jobs (start_by_s) WHERE start_by_s IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_deadlines ON jobs (tenant_id)
    WHERE (finish_by_s IS NOT NULL OR max_gap_s IS NOT NULL) AND deleted_at IS NULL AND paused_at IS NULL;

CREATE TABLE backfills (
    backfill_id  uuid PRIMARY KEY,
    tenant_id    int NOT NULL REFERENCES tenants,
    job_id       uuid NOT NULL REFERENCES jobs,
    schedule_id  bigint NOT NULL REFERENCES schedules,
    from_at      timestamptz NOT NULL,
    to_at        timestamptz NOT NULL,
    reprocess    text NOT NULL CHECK (reprocess IN ('none', 'failed', 'all')),
    newest_first boolean NOT NULL,
    concurrency  int NOT NULL CHECK (concurrency > 0),
    priority     smallint NOT NULL CHECK (priority BETWEEN 0 AND 10),
    params       jsonb,
    state        text NOT NULL CHECK (state IN ('running', 'paused', 'finished', 'cancelled')),
    instants     int NOT NULL,
    made         int NOT NULL DEFAULT 0,
    left_out     int NOT NULL DEFAULT 0,
    cursor_at    timestamptz,
    created_at   timestamptz NOT NULL DEFAULT db_now(),
    created_by   text NOT NULL,
    ended_at     timestamptz,
    CHECK (to_at > from_at),
    CHECK ((state IN ('finished', 'cancelled')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX backfills_open ON backfills (backfill_id) WHERE state = 'running';
CREATE INDEX backfills_tenant ON backfills (tenant_id, backfill_id);
CREATE INDEX backfills_job ON backfills (job_id, backfill_id);

ALTER TABLE executions ADD COLUMN start_by_at timestamptz, ADD COLUMN backfill_id uuid;
CREATE INDEX executions_start_by ON executions (start_by_at) WHERE start_by_at IS NOT NULL AND attempt = 0;
CREATE INDEX executions_backfill ON executions (backfill_id) WHERE backfill_id IS NOT NULL;
ALTER TABLE history ADD COLUMN backfill_id uuid;

CREATE OR REPLACE VIEW all_executions AS
    SELECT execution_id, job_id, tenant_id, version, state, trigger, queue, priority, attempt, fire_at, due_at,
           queued_at, started_at, NULL::timestamptz AS finished_at, session_id, cancel_at, params, created_by,
           NULL::int AS exit_code, NULL::int AS duration_ms, NULL::text AS reason, NULL::text AS error,
           NULL::jsonb AS result, 1 AS fires, backfill_id
    FROM executions
    UNION ALL
    SELECT execution_id, job_id, tenant_id, version, state, trigger, queue, priority, attempt, fire_at, due_at,
           queued_at, started_at, finished_at, session_id, NULL::timestamptz, params, created_by,
           exit_code, duration_ms, reason, error, result, fires, backfill_id
    FROM history;
