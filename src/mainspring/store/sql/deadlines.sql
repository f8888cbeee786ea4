-- name: skip_overdue
-- Skips executions that have not started by their start_by. Fires held back by a pause are left to the pause.
WITH due AS (
    SELECT execution_id, state FROM executions
    WHERE start_by_at <= (SELECT db_now()) AND attempt = 0 AND state IN ('waiting', 'blocked', 'queued')
      AND (due_at < 'infinity' OR needs_by_at IS NOT NULL)
    ORDER BY start_by_at LIMIT $1
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM executions e USING due
    WHERE e.execution_id = ANY (ARRAY[due.execution_id]) AND e.state = due.state AND e.attempt = 0
    RETURNING e.*
), skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, queued_at, finished_at, reason, params, created_by, backfill_id)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'skipped', trigger, queue, fire_at,
           due_at, queued_at, db_now(), 'start_by', params, created_by, backfill_id
    FROM gone
)
SELECT execution_id, CASE WHEN chained THEN job_id END AS chained FROM gone;

-- name: next_overdue
-- Seconds until an execution may be overdue: the earliest deadline, or the shortest of a future execution.
SELECT extract(epoch FROM least(
    (SELECT start_by_at FROM executions
     WHERE start_by_at IS NOT NULL AND attempt = 0 AND state IN ('waiting', 'blocked', 'queued')
       AND (due_at < 'infinity' OR needs_by_at IS NOT NULL)
     ORDER BY start_by_at LIMIT 1) - db_now(),
    (SELECT make_interval(secs => min(start_by_s)) FROM jobs WHERE start_by_s IS NOT NULL AND deleted_at IS NULL),
    (SELECT min(needs_by_at) FROM executions WHERE needs_by_at < 'infinity') - db_now(),
    (SELECT make_interval(secs => min(wait_s)) FROM job_needs)
))::float8;

-- name: watched_jobs
-- Active jobs of a tenant with deadlines, from a partial index.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.tenant_id = $1 AND (j.finish_by_s IS NOT NULL OR j.max_gap_s IS NOT NULL)
  AND j.deleted_at IS NULL AND j.paused_at IS NULL
ORDER BY j.job_id;

-- name: newest_successes
-- The newest success of each job since an instant, by the time inside its id: a short backward index scan.
SELECT w.job_id, e.execution_id
FROM unnest($2::uuid[], $3::uuid[], $4::timestamptz[]) AS w (job_id, low, since)
CROSS JOIN LATERAL (
    SELECT execution_id FROM history
    WHERE job_id = w.job_id AND tenant_id = $1 AND execution_id >= w.low AND finished_at >= w.since
      AND state = 'succeeded'
    ORDER BY execution_id DESC LIMIT 1
) AS e;

-- name: last_successes
-- When each job last succeeded, since an instant.
SELECT w.job_id, e.finished_at
FROM unnest($2::uuid[], $3::timestamptz[]) AS w (job_id, since)
CROSS JOIN LATERAL (
    SELECT finished_at FROM history
    WHERE job_id = w.job_id AND tenant_id = $1 AND finished_at >= w.since AND state = 'succeeded'
    ORDER BY execution_id DESC LIMIT 1
) AS e;
