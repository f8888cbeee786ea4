-- Secrets: values that are encrypted under a master key, which the database never has, or read from a provider.
CREATE TABLE secrets (
    tenant_id     int NOT NULL REFERENCES tenants,
    name          text COLLATE "C" NOT NULL,
    version       int NOT NULL,
    description   text NOT NULL DEFAULT '',
    jobs          text[] NOT NULL DEFAULT '{}',
    queues        text[] NOT NULL DEFAULT '{}',
    hosts         text[] NOT NULL DEFAULT '{}',
    provider      text,
    path          text,
    key_id        text COLLATE "C",
    envelope      bytea,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    created_by    text NOT NULL,
    updated_at    timestamptz NOT NULL DEFAULT db_now(),
    updated_by    text NOT NULL,
    last_used_at  timestamptz,
    PRIMARY KEY (tenant_id, name),
    CHECK ((provider IS NULL) = (envelope IS NOT NULL) AND (envelope IS NULL) = (key_id IS NULL)),
    CHECK ((provider IS NULL) = (path IS NULL))
) WITH (fillfactor = 70);

-- The secret settings of a channel under the same protection; `secrets` is then empty.
ALTER TABLE channels ADD COLUMN key_id text COLLATE "C", ADD COLUMN envelope bytea;
