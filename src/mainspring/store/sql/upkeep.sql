-- name: make_partitions
-- Makes the daily partitions ahead of time.
SELECT * FROM make_partitions($1);

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
