-- Deadline-flexible jobs: executions that may start at any time of a window after their fire.
ALTER TABLE jobs ADD COLUMN flexible text COLLATE "C"; -- the window, see domain/flexible.py; null: starts at its fires
CREATE INDEX jobs_flexible ON jobs (schedule_id, queue, flexible)
    WHERE flexible IS NOT NULL AND deleted_at IS NULL AND paused_at IS NULL;

-- Planned starts of the fires ahead, written by the leader. A fire takes its start from here, once: it is the `due_at` of
-- its execution from then on.
CREATE TABLE planned_starts (
    schedule_id  bigint NOT NULL,
    fire_at      timestamptz NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    flexible     text COLLATE "C" NOT NULL,
    ends_at      timestamptz NOT NULL,              -- the end of the window
    starts       timestamptz[] NOT NULL CHECK (cardinality(starts) > 0),
    job_ids      uuid[],                            -- starts[n] is that of job_ids[n]; null: the executions share them
    takes_ms     float8 NOT NULL,                   -- expected duration of an execution
    executions   int NOT NULL,
    planned_at   timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (schedule_id, fire_at, queue, flexible)
);
