-- A workflow is a job whose executions are its runs: what fires, overlaps, is late or paused needs nothing new.
-- What each version of it says is immutable, and a run points to its version, so an edit never touches a run.
CREATE TABLE workflow_versions (
    job_id      uuid NOT NULL REFERENCES jobs,
    version     int NOT NULL,
    tenant_id   int NOT NULL REFERENCES tenants,
    spec        text NOT NULL,                      -- JSON; as text, because the order of the steps counts
    steps_id    uuid NOT NULL REFERENCES jobs,      -- its versions are the steps' definitions; never listed or fired
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    created_by  text NOT NULL,
    PRIMARY KEY (job_id, version)
);

-- The steps of a version that have a task: what their executions are, and where they wait.
CREATE TABLE workflow_steps (
    job_id      uuid NOT NULL,
    version     int NOT NULL,
    step        int NOT NULL,
    tenant_id   int NOT NULL REFERENCES tenants,
    name        text COLLATE "C" NOT NULL,
    steps_id    uuid NOT NULL,                      -- what its executions are: the job and its version
    definition  int NOT NULL,
    shard       smallint NOT NULL,
    queue       text COLLATE "C" NOT NULL,
    priority    smallint NOT NULL,
    line_id     int NOT NULL,
    limit_id    bigint,
    PRIMARY KEY (job_id, version, step),
    FOREIGN KEY (job_id, version) REFERENCES workflow_versions
);
CREATE INDEX workflow_steps_line ON workflow_steps (line_id);

-- One occurrence of a workflow. It is an execution of the workflow's job too, with the same id: `running` without a
-- worker from the first step to the last. Whoever moves the run on holds this row.
CREATE TABLE runs (
    run_id        uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    job_id        uuid NOT NULL,
    version       int NOT NULL,
    attempt       smallint NOT NULL,                -- of the execution that the run is
    depth         smallint NOT NULL DEFAULT 0,      -- of runs that are steps of runs
    state         text COLLATE "C" NOT NULL,
    ends_as       text COLLATE "C",                 -- once it is cancelling: how it will have ended
    open_steps    int NOT NULL,                     -- the run ends with whoever brings this to 0
    failed_steps  int NOT NULL DEFAULT 0,
    ends_ok       int NOT NULL DEFAULT 0,           -- steps that nothing needs and that succeeded
    params        jsonb,
    fire_at       timestamptz NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT db_now(),
    finished_at   timestamptz,
    timeout_at    timestamptz,
    sla_at        timestamptz,                      -- should have ended by then
    reason        text,
    created_by    text,
    rerun_of      uuid,
    CONSTRAINT runs_state CHECK (state IN ('running', 'succeeded', 'failed', 'partial', 'cancelling', 'cancelled',
                                           'timed_out')),
    CONSTRAINT runs_ends_as CHECK (ends_as IN ('cancelled', 'timed_out')),
    CONSTRAINT runs_cancelling CHECK (state <> 'cancelling' OR ends_as IS NOT NULL),
    CONSTRAINT runs_finished CHECK ((state IN ('running', 'cancelling')) = (finished_at IS NULL)),
    CONSTRAINT runs_open CHECK (open_steps >= 0 AND (finished_at IS NULL OR open_steps = 0)),
    FOREIGN KEY (job_id, version) REFERENCES workflow_versions
) WITH (fillfactor = 70);
CREATE INDEX runs_tenant ON runs (tenant_id, run_id);
CREATE INDEX runs_job ON runs (job_id, run_id);
CREATE INDEX runs_live ON runs (run_id) WHERE finished_at IS NULL;
CREATE INDEX runs_timeout ON runs (timeout_at) WHERE timeout_at IS NOT NULL AND finished_at IS NULL;

-- A step of a run, or an item of it. A step is released by counting `unmet` down, never by looking at those it needs.
CREATE TABLE run_steps (
    run_id        uuid NOT NULL REFERENCES runs,
    tenant_id     int NOT NULL,
    step          int NOT NULL,
    item          int NOT NULL DEFAULT -1,          -- -1: the step itself; from 0: items of a mapped or repeated one
    execution_id  uuid,
    state         text COLLATE "C" NOT NULL,
    unmet         int NOT NULL DEFAULT 0,           -- of those it needs, so many have not ended; the others by how
    ok            int NOT NULL DEFAULT 0,
    failed        int NOT NULL DEFAULT 0,
    skipped       int NOT NULL DEFAULT 0,
    items         int,                              -- of a mapped or repeated step
    open_items    int NOT NULL DEFAULT 0,
    failed_items  int NOT NULL DEFAULT 0,
    next_item     int NOT NULL DEFAULT 0,
    released_at   timestamptz,
    finished_at   timestamptz,
    wake_at       timestamptz,                      -- waits for a time, or for somebody until then
    keeps         boolean NOT NULL DEFAULT false,   -- somebody reads its result
    result        jsonb,
    value         jsonb,                            -- what an item is about
    reason        text,
    decided_by    text,
    flag          text,                             -- those behind it can see that it did not simply succeed
    PRIMARY KEY (run_id, step, item),
    CONSTRAINT run_steps_state CHECK (state IN ('blocked', 'waiting', 'running', 'succeeded', 'failed', 'timed_out',
                                                'cancelled', 'skipped', 'lost')),
    CONSTRAINT run_steps_finished CHECK ((state IN ('blocked', 'waiting', 'running')) = (finished_at IS NULL)),
    CONSTRAINT run_steps_flag CHECK (flag IN ('forced', 'skipped', 'kept')),
    CONSTRAINT run_steps_wake CHECK (wake_at IS NULL OR finished_at IS NULL)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX run_steps_execution ON run_steps (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX run_steps_wake ON run_steps (wake_at) WHERE wake_at IS NOT NULL;

-- Events that were sent to a run; once each.
CREATE TABLE run_events (
    run_id       uuid NOT NULL REFERENCES runs,
    tenant_id    int NOT NULL,
    name         text COLLATE "C" NOT NULL,
    payload      jsonb,
    received_at  timestamptz NOT NULL DEFAULT db_now(),
    received_by  text NOT NULL,
    PRIMARY KEY (run_id, name)
);

-- A job that is executed when others have succeeded. `since_at` is when it last was: older successes are used up.
CREATE TABLE job_needs (
    child_id    uuid NOT NULL REFERENCES jobs,
    parent_id   uuid NOT NULL REFERENCES jobs,
    tenant_id   int NOT NULL REFERENCES tenants,
    timeout_s   float8 CHECK (timeout_s > 0),       -- a success longer ago does not count; null: any does
    since_at    timestamptz NOT NULL DEFAULT db_now(),
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    created_by  text NOT NULL,
    freed_at    timestamptz,                        -- a person let it go without a success
    freed_as    text CHECK (freed_as IN ('forced', 'skipped')),
    freed_by    text,
    reason      text,
    PRIMARY KEY (child_id, parent_id),
    CHECK (child_id <> parent_id),
    CHECK (num_nonnulls(freed_at, freed_as, freed_by, reason) IN (0, 4))
);
CREATE INDEX job_needs_parent ON job_needs (parent_id);

CREATE INDEX lines_workflows ON lines (line_id) WHERE demand = '{"kind":"workflow"}';
