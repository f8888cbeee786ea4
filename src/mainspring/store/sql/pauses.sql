-- name: pauses_over
-- Jobs whose timed pause is over. Resuming checks it again under the job's lock.
SELECT job_id, tenant_id FROM jobs
WHERE paused_until <= (SELECT db_now()) AND deleted_at IS NULL
ORDER BY paused_until LIMIT $1;

-- name: next_pause_over
-- Seconds until the next timed pause ends.
SELECT extract(epoch FROM min(paused_until) - db_now())::float8 FROM jobs
WHERE paused_until IS NOT NULL AND deleted_at IS NULL;

-- name: auto_pausing_jobs
-- Jobs among these executions that pause after some failures; read before the executions are settled. Whether a job is
-- paused or deleted is checked when it is paused: plans made on empty tables would scan a partial index on that.
WITH failed AS MATERIALIZED (
    SELECT DISTINCT job_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND trigger = 'fire'
)
SELECT j.job_id, j.tenant_id, j.shard, j.pause_after
FROM failed JOIN jobs j USING (job_id) WHERE j.pause_after IS NOT NULL;

-- name: lock_shard_rows
-- Locks shard rows in order, before jobs and executions, as an edit does.
SELECT shard FROM shards WHERE shard = ANY ($1::smallint[]) ORDER BY shard FOR UPDATE;

-- name: has_failed_enough
-- Whether the last `pause_after` fires of a job have all failed. Cancelled and skipped fires do not count, nor fires
-- before the job was created, resumed or rescheduled.
SELECT count(*) = j.pause_after AND bool_and(state IN ('failed', 'timed_out', 'lost'))
FROM jobs j CROSS JOIN LATERAL (
    SELECT h.state FROM history h
    WHERE h.job_id = j.job_id AND h.trigger = 'fire' AND h.state NOT IN ('cancelled', 'skipped')
      AND h.finished_at > j.active_from
    ORDER BY h.execution_id DESC LIMIT j.pause_after
) AS last
WHERE j.job_id = $1 AND j.tenant_id = $2 AND j.pause_after IS NOT NULL
GROUP BY j.pause_after;

-- name: pause_too_costly
-- Pauses the jobs of schedules that exceeded their step budget while firing, in shards that the owner has locked.
UPDATE jobs j SET paused_at = db_now(), pause_reason = $4, paused_until = NULL, updated_at = db_now()
FROM shards s
WHERE j.schedule_id = ANY ($1::bigint[]) AND j.shard = ANY ($2::smallint[]) AND s.shard = j.shard AND s.owner = $3
  AND j.paused_at IS NULL AND j.deleted_at IS NULL
RETURNING j.job_id, j.tenant_id, j.name;
