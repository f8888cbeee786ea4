-- Hourly statistics of executions by job and queue, which the leader adds up from history every few minutes.

-- How far history is added up: every execution that finished in [first_at, rolled_up_to) is in the rollups, once.
CREATE TABLE rollup_progress (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    first_at      timestamptz NOT NULL,             -- a full hour
    rolled_up_to  timestamptz NOT NULL
);
INSERT INTO rollup_progress (first_at, rolled_up_to)
SELECT at, at FROM (SELECT date_bin('1 hour', db_now(), '2000-01-01Z')) AS hour (at);

-- Successes are counted by duration: counts[n] of them are in the bucket buckets[n], see duration_bucket.
CREATE TABLE job_rollups (
    job_id       uuid NOT NULL,
    at           timestamptz NOT NULL,              -- the hour in which they finished
    queue        text COLLATE "C" NOT NULL,
    tenant_id    int NOT NULL,
    succeeded    bigint NOT NULL,
    failed       bigint NOT NULL,                   -- failed, timed out or lost
    cancelled    bigint NOT NULL,
    skipped      bigint NOT NULL,                   -- fires
    duration_ms  bigint NOT NULL,                   -- of the last attempts, in total
    wait_ms      bigint NOT NULL,                   -- from due to started, in total
    buckets      smallint[] NOT NULL,
    counts       bigint[] NOT NULL,
    PRIMARY KEY (job_id, at, queue)
) WITH (fillfactor = 70);
CREATE INDEX job_rollups_at ON job_rollups (at);
CREATE INDEX job_rollups_tenant ON job_rollups (tenant_id, at);

CREATE TABLE queue_rollups (
    tenant_id    int NOT NULL,
    at           timestamptz NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    succeeded    bigint NOT NULL,
    failed       bigint NOT NULL,
    cancelled    bigint NOT NULL,
    skipped      bigint NOT NULL,
    duration_ms  bigint NOT NULL,
    wait_ms      bigint NOT NULL,
    buckets      smallint[] NOT NULL,
    counts       bigint[] NOT NULL,
    PRIMARY KEY (tenant_id, at, queue)
) WITH (fillfactor = 70);
CREATE INDEX queue_rollups_at ON queue_rollups (at);

-- The bucket of a duration: eight for each doubling, so a percentile is at most 5 % off. domain/statistics.py has the
-- inverse.
CREATE FUNCTION duration_bucket(duration_ms int) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT floor(ln(greatest(duration_ms, 0) + 1.0::float8) * 8 / ln(2.0::float8))::smallint';

-- Add up two lists of counts by bucket; both results are in order of bucket.
CREATE FUNCTION merged_buckets(a smallint[], b smallint[]) RETURNS smallint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT coalesce(array_agg(DISTINCT n ORDER BY n), ''{}'') FROM unnest(a || b) AS n';
CREATE FUNCTION merged_counts(a smallint[], m bigint[], b smallint[], n bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(array_agg(total ORDER BY bucket), '{}')
    FROM (SELECT bucket, sum(one)::bigint AS total FROM unnest(a || b, m || n) AS both_lists (bucket, one) GROUP BY bucket) t
$$;

-- Finds what finished in an interval. Block ranges, because history is written in that order: an entry for each 64 pages.
-- On an expression that no other statement has: the planner takes block ranges for cheaper than they are.
CREATE INDEX history_finished ON history USING brin (greatest(finished_at, finished_at))
    WITH (pages_per_range = 64, autosummarize = on);

-- The privileges of a kind of role on a table or view. A new table of tenants needs no line here.
CREATE OR REPLACE FUNCTION wanted_privileges(kind text, relation text, has_tenant boolean) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN relation IN ('migrations', 'all_executions') THEN '{SELECT}'
        WHEN relation IN ('database_roles', 'submitting_roles') THEN
            CASE kind WHEN 'server' THEN '{SELECT}' ELSE '{}' END
        WHEN relation IN ('audit', 'history', 'log_chunks', 'job_versions', 'workflow_versions', 'calendar_versions')
            THEN '{SELECT,INSERT}'
        WHEN relation = 'attempts' THEN CASE kind WHEN 'server' THEN '{SELECT,INSERT,DELETE}' ELSE '{SELECT,INSERT}' END
        WHEN kind = 'server' THEN '{SELECT,INSERT,UPDATE,DELETE}'
        WHEN relation IN ('tenants', 'schedulers', 'measurements', 'holds', 'queue_sample_times', 'rollup_progress')
            THEN '{SELECT}'
        WHEN relation = 'schedules' THEN '{SELECT,INSERT}'
        WHEN relation = 'shards' THEN '{SELECT}'  -- and columns, see below
        WHEN has_tenant THEN '{SELECT,INSERT,UPDATE,DELETE}'
        ELSE '{}'
    END::text[]
$$;
