-- name: make_partitions
-- Makes the daily partitions ahead of time.
SELECT * FROM make_partitions($1);

-- name: drop_partition
-- Drops the oldest day of a partitioned table that ended $2 seconds ago; its name, or null if there is none.
SELECT drop_partition($1, ((db_now() - make_interval(secs => $2)) AT TIME ZONE 'UTC')::date);

-- name: forget_attempts
-- Attempts of executions that were due so long ago and have ended; a portion at a time, along the key.
WITH old AS (
    SELECT a.execution_id, a.attempt FROM attempts a
    WHERE a.execution_id < $1 AND a.ended_at < (SELECT db_now()) - make_interval(secs => $2)
      AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = a.execution_id)
    ORDER BY a.execution_id, a.attempt LIMIT $3
)
DELETE FROM attempts a USING old WHERE a.execution_id = old.execution_id AND a.attempt = old.attempt
RETURNING a.execution_id;

-- name: forget_idempotency_keys
-- Keys are remembered for a day.
DELETE FROM idempotency_keys WHERE created_at < db_now() - interval '1 day';

-- name: live_counts
-- How many executions are in each live state, for one tenant.
SELECT state, count(*) AS n FROM executions WHERE tenant_id = $1 GROUP BY state;

-- name: trouble_count
-- How many executions ended badly since an instant; a partial index serves it.
SELECT count(*) FROM history
WHERE tenant_id = $1 AND finished_at >= $2 AND state IN ('failed', 'timed_out', 'lost');

-- name: job_counts
-- How many jobs there are, and how many are paused.
SELECT count(*) AS jobs, count(paused_at) AS paused FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL;
