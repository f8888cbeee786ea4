-- What executors of other packages take as settings, as their workers told it.
CREATE TABLE plugins (
    tenant_id   int NOT NULL REFERENCES tenants,
    type        text COLLATE "C" NOT NULL,
    schema      jsonb NOT NULL,                     -- JSON Schema
    shared      boolean NOT NULL DEFAULT false,     -- told by a worker that serves every tenant
    updated_at  timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (tenant_id, type)
);

-- Where an execution would go on: the last word of its attempts. It goes when the execution is final.
CREATE TABLE checkpoints (
    execution_id  uuid PRIMARY KEY,
    tenant_id     int NOT NULL,
    attempt       smallint NOT NULL,                -- that said so
    value         jsonb NOT NULL,
    saved_at      timestamptz NOT NULL DEFAULT db_now()
);

-- Files that executions leave. The bytes are in the artifact store, under a key that we made up.
CREATE TABLE artifacts (
    execution_id  uuid NOT NULL,
    name          text COLLATE "C" NOT NULL,
    tenant_id     int NOT NULL,
    attempt       smallint NOT NULL,                -- that wrote it
    key           uuid NOT NULL UNIQUE,             -- in the artifact store
    bytes         bigint NOT NULL CHECK (bytes >= 0),
    sha256        bytea NOT NULL,
    content_type  text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (execution_id, name)
);
CREATE INDEX artifacts_expiry ON artifacts (expires_at);
