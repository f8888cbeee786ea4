CREATE TABLE channels (
    channel_id     uuid PRIMARY KEY,
    tenant_id      int NOT NULL REFERENCES tenants,
    name           text COLLATE "C" NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('webhook', 'slack', 'pagerduty', 'smtp', 'apprise')),
    target         jsonb NOT NULL,
    secrets        jsonb NOT NULL DEFAULT '{}',
    events         text[] NOT NULL DEFAULT '{}',
    jobs           text[] NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL DEFAULT db_now(),
    created_by     text NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT db_now(),
    failing_since  timestamptz,
    last_error     text,
    disabled_at    timestamptz,
    UNIQUE (tenant_id, name)
) WITH (fillfactor = 70);

CREATE TABLE outbox (
    message_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id      uuid NOT NULL,
    tenant_id     int NOT NULL REFERENCES tenants,
    channel_id    uuid NOT NULL REFERENCES channels ON DELETE CASCADE,
    event         text COLLATE "C" NOT NULL,
    stream        text COLLATE "C" NOT NULL,
    body          jsonb NOT NULL,
    state         text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dropped')),
    tries         int NOT NULL DEFAULT 0,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    next_at       timestamptz NOT NULL DEFAULT db_now(),
    tried_at      timestamptz,
    status        int,
    excerpt       text,
    error         text,
    duration_ms   int,
    UNIQUE (channel_id, event_id),
    CHECK (state = 'pending' OR tried_at IS NOT NULL OR error IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX outbox_pending ON outbox (channel_id, stream, message_id) WHERE state = 'pending';
CREATE INDEX outbox_due ON outbox (next_at) WHERE state = 'pending';
CREATE INDEX outbox_tenant ON outbox (tenant_id, message_id);
CREATE INDEX outbox_age ON outbox (created_at);

CREATE TABLE alert_rules (
    tenant_id   int NOT NULL REFERENCES tenants,
    name        text COLLATE "C" NOT NULL,
    rule        jsonb NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT db_now(),
    updated_by  text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE alerts (
    alert_id     uuid PRIMARY KEY,
    tenant_id    int NOT NULL REFERENCES tenants,
    rule         text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    severity     text NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    state        text NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    value        float8 NOT NULL,
    threshold    float8 NOT NULL,
    summary      text NOT NULL,
    since_at     timestamptz NOT NULL,
    fired_at     timestamptz,
    told_at      timestamptz,
    resolved_at  timestamptz,
    CHECK ((state = 'pending') = (fired_at IS NULL)),
    CHECK ((state = 'resolved') = (resolved_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX alerts_open ON alerts (tenant_id, rule, key) WHERE state <> 'resolved';
CREATE INDEX alerts_tenant ON alerts (tenant_id, alert_id);

CREATE TABLE silences (
    silence_id    uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    matchers      jsonb NOT NULL,
    start_at      timestamptz,
    end_at        timestamptz,
    schedule      jsonb,
    schedule_key  text,
    lasts_ms      bigint CHECK (lasts_ms > 0),
    reason        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    created_by    text NOT NULL,
    CHECK (end_at > start_at),
    CHECK (num_nonnulls(start_at, end_at) IN (0, 2)),
    CHECK (num_nonnulls(schedule, schedule_key, lasts_ms) IN (0, 3)),
    CHECK ((start_at IS NULL) <> (schedule IS NULL))
);
CREATE INDEX silences_tenant ON silences (tenant_id, created_at);

CREATE INDEX history_unstarted ON history (finished_at) WHERE state = 'skipped' AND reason = 'start_by';

CREATE TABLE measurements (
    process_id   uuid PRIMARY KEY,
    name         text NOT NULL,
    measured_at  timestamptz NOT NULL DEFAULT db_now(),
    figures      jsonb NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE job_notices (
    job_id     uuid NOT NULL REFERENCES jobs,
    tenant_id  int NOT NULL REFERENCES tenants,
    notice     text COLLATE "C" NOT NULL,
    channel    text COLLATE "C" NOT NULL,
    by_s       float8,
    factor     float8,
    PRIMARY KEY (notice, job_id, channel)
);
CREATE INDEX job_notices_job ON job_notices (job_id);
CREATE INDEX job_notices_channel ON job_notices (tenant_id, channel);
