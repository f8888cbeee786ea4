-- Events from outside that start a job or workflow. The job is named, not referenced: it may be deleted and created again.
CREATE TABLE triggers (
    trigger_id        uuid PRIMARY KEY,
    tenant_id         int NOT NULL REFERENCES tenants,
    name              text COLLATE "C" NOT NULL,
    kind              text NOT NULL CHECK (kind IN ('webhook', 'completion', 'files')),
    job               text COLLATE "C" NOT NULL,        -- the job or workflow that it starts
    after_job         text COLLATE "C",                 -- of a completion: the job or workflow that ends
    outcomes          text[] NOT NULL DEFAULT '{}',     -- of a completion: the states that count
    spec              jsonb NOT NULL,
    secrets           jsonb NOT NULL DEFAULT '{}',      -- in plain text, as those of channels: protect the database
    version           int NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL DEFAULT db_now(),
    created_by        text NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT db_now(),
    since_at          timestamptz NOT NULL DEFAULT db_now(),  -- what happened before does not count
    paused_at         timestamptz,
    pause_reason      text,
    last_rejected_at  timestamptz,                      -- a request without a valid signature
    last_rejection    text,
    UNIQUE (tenant_id, name),
    CHECK ((kind = 'completion') = (after_job IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX triggers_job ON triggers (tenant_id, job);
CREATE INDEX triggers_after ON triggers (tenant_id, after_job) WHERE after_job IS NOT NULL;

-- What reached a trigger, and what it led to. `key` identifies equal deliveries: the first one that starts an execution is
-- the only one. A delivery is `pending` between the transaction that noticed it and the one that decides.
CREATE TABLE trigger_deliveries (
    delivery_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trigger_id    uuid NOT NULL REFERENCES triggers ON DELETE CASCADE,
    tenant_id     int NOT NULL,
    key           text COLLATE "C" NOT NULL,
    event         text,
    outcome       text NOT NULL CHECK (outcome IN ('pending', 'started', 'filtered', 'paused', 'refused')),
    reason        text,
    execution_id  uuid,
    params        jsonb,
    repeats       int NOT NULL DEFAULT 0,               -- how often it came again
    received_at   timestamptz NOT NULL DEFAULT db_now(),
    UNIQUE (trigger_id, key),
    CHECK ((outcome = 'started') = (execution_id IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX trigger_deliveries_newest ON trigger_deliveries (trigger_id, delivery_id);
CREATE INDEX trigger_deliveries_pending ON trigger_deliveries (delivery_id) WHERE outcome = 'pending';
CREATE INDEX trigger_deliveries_received ON trigger_deliveries (received_at);
