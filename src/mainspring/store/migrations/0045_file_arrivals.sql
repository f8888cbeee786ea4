-- Triggers of kind `files`: when to look next, and what the last look found. Written by the leader after each look.
CREATE TABLE trigger_watches (
    trigger_id    uuid PRIMARY KEY REFERENCES triggers ON DELETE CASCADE,
    tenant_id     int NOT NULL,
    since_at      timestamptz NOT NULL DEFAULT db_now(),  -- files that are older than this exist already
    first_pass    boolean NOT NULL DEFAULT true,          -- no look has reached the end of the place yet
    after_path    text COLLATE "C",                       -- the last look ended here; the next one continues
    pass_from_at  timestamptz,                            -- when the pass that is not complete yet began
    passed_at     timestamptz,                            -- when the last complete pass began
    next_look_at  timestamptz NOT NULL DEFAULT db_now(),
    looked_at     timestamptz,                            -- the last look that could read the place
    error         text,                                   -- why the place, or a part of it, cannot be read
    error_at      timestamptz,                            -- since when
    CHECK ((error IS NULL) = (error_at IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX trigger_watches_due ON trigger_watches (next_look_at);

-- What looks have found and decided, one row per path. The row of a version that has started an execution is kept as long as
-- the file exists, and a week longer: deliveries are deleted earlier. `version`: size and modification time, or an etag.
CREATE TABLE trigger_files (
    trigger_id    uuid NOT NULL REFERENCES triggers ON DELETE CASCADE,
    path          text COLLATE "C" NOT NULL,              -- below the place
    tenant_id     int NOT NULL,
    version       text COLLATE "C" NOT NULL,
    outcome       text NOT NULL CHECK (outcome IN ('seen', 'ignored', 'started', 'filtered', 'paused', 'refused')),
    decided_for   int,                                    -- the version of the trigger
    seen_at       timestamptz NOT NULL DEFAULT db_now(),  -- the first look that found this version
    last_seen_at  timestamptz NOT NULL DEFAULT db_now(),  -- renewed once a day
    PRIMARY KEY (trigger_id, path)
) WITH (fillfactor = 80);
CREATE INDEX trigger_files_last_seen ON trigger_files (last_seen_at);

-- Executions that a trigger has started, as long as the history has them. The trigger may be deleted meanwhile.
CREATE TABLE trigger_starts (
    execution_id  uuid PRIMARY KEY,
    tenant_id     int NOT NULL,
    job_id        uuid NOT NULL,
    trigger_id    uuid NOT NULL,
    name          text COLLATE "C" NOT NULL,
    kind          text NOT NULL,
    key           text COLLATE "C" NOT NULL,              -- of the delivery
    event         text
);
CREATE INDEX trigger_starts_job ON trigger_starts (job_id, execution_id);
