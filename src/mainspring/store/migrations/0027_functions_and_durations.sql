-- Python functions as workers state them, by the SHA-256 of the statement: a fleet with the same code shares one row.
CREATE TABLE function_sets (
    tenant_id     int NOT NULL REFERENCES tenants,
    function_set  bytea NOT NULL,
    functions     text[] NOT NULL,
    modules       jsonb NOT NULL,
    used_at       timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (tenant_id, function_set)
);

-- Null in sessions that state nothing: of older workers, and registered by older api processes.
ALTER TABLE sessions ADD COLUMN function_set bytea;

-- How long each attempt ran, measured by its worker. Null: written by an older program.
ALTER TABLE attempts ADD COLUMN duration_ms int;

-- Finds deleted jobs by name: their history is kept.
CREATE INDEX jobs_deleted ON jobs (tenant_id, name COLLATE "C", job_id) WHERE deleted_at IS NOT NULL;
