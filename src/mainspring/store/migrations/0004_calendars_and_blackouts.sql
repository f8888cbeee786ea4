-- Calendars, blackouts and jitter. Additive: programs that do not know these columns leave them null.

-- A delay that spreads starts; domain/schedule/jitter.py has the same in Python.
CREATE FUNCTION jitter_ms(execution_id uuid, jitter_ms bigint, gap_ms bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN most > 0 THEN ('x' || substr(encode(sha256(uuid_send(execution_id)), 'hex'), 1, 14))::bit(56)::bigint
                                   % (most + 1) ELSE 0 END
    FROM (SELECT CASE WHEN jitter_ms > 0 THEN least(jitter_ms, gap_ms - 1) END) AS bound (most)
$$;

ALTER TABLE schedules ADD COLUMN content text;
ALTER TABLE shards ADD COLUMN blackouts bigint NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN jitter_ms int CHECK (jitter_ms > 0);
ALTER TABLE jobs ADD COLUMN calendars text[];
CREATE INDEX jobs_calendars ON jobs USING gin (calendars) WHERE calendars IS NOT NULL AND deleted_at IS NULL;
ALTER TABLE job_versions ADD COLUMN tzdata text;

CREATE TABLE calendars (
    tenant_id   int NOT NULL REFERENCES tenants,
    name        text COLLATE "C" NOT NULL,
    version     int NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE calendar_versions (
    tenant_id   int NOT NULL REFERENCES tenants,
    name        text COLLATE "C" NOT NULL,
    version     int NOT NULL,
    content     jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    created_by  text NOT NULL,
    PRIMARY KEY (tenant_id, name, version)
);

CREATE TABLE blackouts (
    blackout_id   uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    queue         text COLLATE "C",
    job_id        uuid REFERENCES jobs,
    start_at      timestamptz,
    end_at        timestamptz,
    schedule      jsonb,
    schedule_key  text,
    lasts_ms      bigint CHECK (lasts_ms > 0),
    reason        text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    created_by    text NOT NULL,
    deleted_at    timestamptz,
    deleted_by    text,
    CHECK (end_at > start_at),
    CHECK (queue IS NULL OR job_id IS NULL),
    CHECK (num_nonnulls(start_at, end_at) IN (0, 2)),
    CHECK (num_nonnulls(schedule, schedule_key, lasts_ms) IN (0, 3)),
    CHECK ((start_at IS NULL) <> (schedule IS NULL))
);
CREATE INDEX blackouts_open ON blackouts (tenant_id, created_at) WHERE deleted_at IS NULL;
