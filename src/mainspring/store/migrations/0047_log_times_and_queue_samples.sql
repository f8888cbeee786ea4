-- When a log chunk was stored. Chunks of earlier versions have none; the default also serves processes that do not know
-- the column, and is set apart so that existing rows are not rewritten.
ALTER TABLE log_chunks ADD COLUMN received_at timestamptz;
ALTER TABLE log_chunks ALTER COLUMN received_at SET DEFAULT db_now();

-- The depth of queues, once a minute, for the chart of the last hours. A sample lists only the queues with executions
-- waiting, so a queue without a row in a sample was empty, and a minute without a sample is unknown.
CREATE TABLE queue_sample_times (
    sampled_at  timestamptz PRIMARY KEY
);
CREATE TABLE queue_samples (
    tenant_id   int NOT NULL REFERENCES tenants,
    sampled_at  timestamptz NOT NULL REFERENCES queue_sample_times ON DELETE CASCADE,
    queue       text COLLATE "C" NOT NULL,
    depth       int NOT NULL CHECK (depth > 0),     -- counted up to a bound
    PRIMARY KEY (tenant_id, sampled_at, queue)
);
CREATE INDEX queue_samples_time ON queue_samples (sampled_at);
