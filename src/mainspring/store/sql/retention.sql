-- name: make_partitions
-- Creates the daily partitions of the next $1 days.
SELECT * FROM make_partitions($1);

-- name: drop_partition
-- Drops the oldest daily partition of table $1 that ended $2 seconds ago; returns its name, or null if there is none.
SELECT drop_partition($1, ((db_now() - make_interval(secs => $2)) AT TIME ZONE 'UTC')::date);

-- name: shorter_retention
-- Tenants with a retention of their own that is shorter than $1 seconds.
SELECT tenant_id FROM tenants WHERE keep_history_s < $1 ORDER BY tenant_id;

-- name: forget_history
-- Deletes executions of tenant $1 that have expired, among the next $2 executions; null if none can be left.
SELECT forget_history($1, $2);

-- name: forget_attempts
-- Deletes up to $3 attempts of ended executions that were due before the id $1 and ended $2 seconds ago, oldest first.
WITH old AS (
    SELECT a.execution_id, a.attempt FROM attempts a
    WHERE a.execution_id < $1 AND a.ended_at < (SELECT db_now()) - make_interval(secs => $2)
      AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = a.execution_id)
    ORDER BY a.execution_id, a.attempt LIMIT $3
)
DELETE FROM attempts a USING old WHERE a.execution_id = old.execution_id AND a.attempt = old.attempt
RETURNING a.execution_id;

-- name: forget_idempotency_keys
-- Deletes idempotency keys older than a day.
DELETE FROM idempotency_keys WHERE created_at < db_now() - interval '1 day';

-- name: forget_request_keys
-- Deletes the responses of requests with an Idempotency-Key older than a day.
DELETE FROM request_keys WHERE created_at < db_now() - interval '1 day';
