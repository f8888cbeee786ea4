-- name: pauses_over
-- Pauses whose end has come; resuming checks it again under the job's lock.
SELECT job_id, tenant_id FROM jobs
WHERE paused_until <= (SELECT db_now()) AND deleted_at IS NULL
ORDER BY paused_until LIMIT $1;

-- name: next_pause_over
-- Seconds until the next pause ends by itself.
SELECT extract(epoch FROM min(paused_until) - db_now())::float8 FROM jobs
WHERE paused_until IS NOT NULL AND deleted_at IS NULL;

-- name: auto_pausing_jobs
-- Before fires are settled as failed: the jobs among them that pause after some failures. Whether they are paused or
-- deleted is checked when they are paused: a partial index on that would be walked by plans made on empty tables.
WITH failed AS MATERIALIZED (
    SELECT DISTINCT job_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND trigger = 'fire'
)
SELECT j.job_id, j.tenant_id, j.shard, j.pause_after
FROM failed JOIN jobs j USING (job_id) WHERE j.pause_after IS NOT NULL;

-- name: lock_shard_rows
-- Shard rows in order, before jobs and executions: whoever may pause a job takes them as an editor does.
SELECT shard FROM shards WHERE shard = ANY ($1::smallint[]) ORDER BY shard FOR UPDATE;

-- name: has_failed_enough
-- Whether the last fires of a job all failed for good, as many as it takes. What was cancelled or skipped does not
-- count, nor does anything before the job was created, resumed or rescheduled.
SELECT count(*) = j.pause_after AND bool_and(state IN ('failed', 'timed_out', 'lost'))
FROM jobs j CROSS JOIN LATERAL (
    SELECT h.state FROM history h
    WHERE h.job_id = j.job_id AND h.trigger = 'fire' AND h.state NOT IN ('cancelled', 'skipped')
      AND h.finished_at > j.active_from
    ORDER BY h.execution_id DESC LIMIT j.pause_after
) AS last
WHERE j.job_id = $1 AND j.tenant_id = $2 AND j.pause_after IS NOT NULL
GROUP BY j.pause_after;
