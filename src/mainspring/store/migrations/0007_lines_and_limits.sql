-- Executions wait in lines, interned like schedules; limits, queue settings and what workers have.
-- Rows written by an older program have line 0; a dispatcher gives them their line when it first sees them. An older
-- program finds the new columns filled by their defaults; without executions_claim its claims are slower, not wrong.

ALTER TABLE tenants
    ADD COLUMN weight float8 NOT NULL DEFAULT 1,
    ADD COLUMN cap int,
    ADD CONSTRAINT tenants_weight CHECK (weight > 0),
    ADD CONSTRAINT tenants_cap CHECK (cap > 0);

CREATE TABLE queues (
    tenant_id   int NOT NULL REFERENCES tenants,
    name        text COLLATE "C" NOT NULL,
    cap         int CHECK (cap > 0),
    lease_s     float8 CHECK (lease_s > 0),
    patience_s  float8 NOT NULL DEFAULT 30 CHECK (patience_s >= 0),
    placement   text NOT NULL DEFAULT 'auto' CHECK (placement IN ('auto', 'best_fit', 'least_loaded')),
    may_help    text[] NOT NULL DEFAULT '{}',
    paused_at   timestamptz,
    updated_at  timestamptz NOT NULL DEFAULT db_now(),
    updated_by  text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

CREATE TABLE limits (
    limit_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  int NOT NULL REFERENCES tenants,
    kind       text NOT NULL CHECK (kind IN ('concurrency', 'rate')),
    key        text COLLATE "C" NOT NULL,
    most       int NOT NULL CHECK (most > 0),
    per_s      float8 CHECK (per_s > 0),
    burst      int NOT NULL DEFAULT 1 CHECK (burst > 0),
    next_at    timestamptz,
    used_at    timestamptz NOT NULL DEFAULT db_now(),
    UNIQUE (tenant_id, kind, key),
    CHECK ((kind = 'rate') = (per_s IS NOT NULL))
) WITH (fillfactor = 50);

CREATE TABLE lines (
    line_id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  int NOT NULL REFERENCES tenants,
    queue      text COLLATE "C" NOT NULL,
    demand     text COLLATE "C" NOT NULL,
    limit_id   bigint NOT NULL DEFAULT 0,
    rate_id    bigint NOT NULL DEFAULT 0,
    used_at    timestamptz NOT NULL DEFAULT db_now(),
    UNIQUE (tenant_id, queue, demand, limit_id, rate_id)
);

ALTER TABLE jobs
    ADD COLUMN line_id int NOT NULL DEFAULT 0,
    ADD COLUMN limit_id bigint,
    ADD COLUMN keyed boolean NOT NULL DEFAULT false;

ALTER TABLE sessions
    ADD COLUMN resources jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN shared boolean NOT NULL DEFAULT false,
    ADD COLUMN lease_s float8;

ALTER TABLE executions
    ADD COLUMN line_id int NOT NULL DEFAULT 0,
    ADD COLUMN limit_id bigint;
DROP INDEX executions_claim;
CREATE INDEX executions_line ON executions (line_id, rank, execution_id) WHERE state = 'queued';
CREATE INDEX executions_limit ON executions (limit_id) WHERE limit_id IS NOT NULL AND session_id IS NOT NULL;
