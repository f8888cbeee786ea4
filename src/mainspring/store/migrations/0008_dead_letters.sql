-- Dead letters: what failed or was lost for good and waits for a person. An older program ends executions without
-- one; nothing else changes for it.

CREATE TABLE dead_letters (
    dead_letter_id  uuid PRIMARY KEY,
    tenant_id       int NOT NULL,
    job_id          uuid NOT NULL,
    version         int NOT NULL,
    exit_code       int,
    state           text COLLATE "C" NOT NULL DEFAULT 'open',
    ended_as        text COLLATE "C" NOT NULL,
    trigger         text COLLATE "C" NOT NULL,
    queue           text COLLATE "C" NOT NULL,
    fingerprint     text COLLATE "C" NOT NULL,
    fire_at         timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    reason          text,
    error           text,
    attempts        jsonb NOT NULL,
    params          jsonb,
    new_params      jsonb,
    replay_of       uuid,
    claimed_by      text,
    claimed_until   timestamptz,
    note            text,
    noted_by        text,
    replays         int NOT NULL DEFAULT 0,
    replayed_as     uuid,
    replayed_at     timestamptz,
    replayed_by     text,
    replay_after    uuid,
    replay_gap_s    float8,
    resolved_by     uuid,
    closed_at       timestamptz,
    closed_by       text,
    close_reason    text,
    CONSTRAINT dead_letters_state
        CHECK (state IN ('open', 'held', 'replaying', 'resolved', 'superseded', 'dismissed')),
    CONSTRAINT dead_letters_ended_as CHECK (ended_as IN ('failed', 'timed_out', 'lost')),
    CONSTRAINT dead_letters_claim CHECK ((claimed_by IS NULL) = (claimed_until IS NULL)),
    CONSTRAINT dead_letters_held CHECK ((state = 'held') = (replay_after IS NOT NULL)),
    CONSTRAINT dead_letters_replaying CHECK (state <> 'replaying' OR replayed_as IS NOT NULL),
    CONSTRAINT dead_letters_resolved CHECK ((state = 'resolved') = (resolved_by IS NOT NULL)),
    CONSTRAINT dead_letters_dismissed CHECK (state <> 'dismissed' OR close_reason IS NOT NULL),
    CONSTRAINT dead_letters_closed CHECK ((state IN ('resolved', 'superseded', 'dismissed')) = (closed_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX dead_letters_open ON dead_letters (tenant_id, job_id, fingerprint, created_at) WHERE state = 'open';
CREATE INDEX dead_letters_tenant ON dead_letters (tenant_id, dead_letter_id);
CREATE INDEX dead_letters_age ON dead_letters (created_at);
CREATE INDEX dead_letters_replaying ON dead_letters (dead_letter_id) WHERE state = 'replaying';
CREATE INDEX dead_letters_held ON dead_letters (replay_after) WHERE state = 'held';
CREATE INDEX dead_letters_replayed_as ON dead_letters (replayed_as) WHERE replayed_as IS NOT NULL;
