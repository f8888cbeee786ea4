-- Queries of the start page: what needs an operator. Each is bounded, whatever the size of the tables.

-- name: failing_candidates
-- Active jobs with open dead letters, at most $2. Walks the index from job to job. Letters attached to a run's are left
-- out.
WITH RECURSIVE walk AS (
    (SELECT job_id, 1 AS n FROM dead_letters WHERE tenant_id = $1 AND state = 'open' AND run_id IS NULL
     ORDER BY job_id LIMIT 1)
    UNION ALL
    SELECT next.job_id, w.n + 1 FROM walk w
    CROSS JOIN LATERAL (
        SELECT d.job_id FROM dead_letters d
        WHERE d.tenant_id = $1 AND d.state = 'open' AND d.run_id IS NULL AND d.job_id > w.job_id
        ORDER BY d.job_id LIMIT 1
    ) AS next
    WHERE w.n < $2
)
SELECT w.job_id FROM walk w JOIN jobs j USING (job_id) WHERE j.deleted_at IS NULL AND j.paused_at IS NULL;

-- name: open_letters
-- Those of these executions that have an open dead letter.
SELECT d.dead_letter_id, d.job_id, j.name AS job_name, d.error, d.reason, d.ended_as, d.created_at, d.claimed_by,
       d.claimed_until, CASE WHEN d.trigger = 'step' THEN v.spec ->> 'name' END AS step_name
FROM dead_letters d JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = d.job_id AND v.version = d.version
WHERE d.dead_letter_id = ANY ($2::uuid[]) AND d.tenant_id = $1 AND d.state = 'open';

-- name: live_runs
-- The newest runs that have not ended.
SELECT r.run_id, r.job_id, r.version, r.params, r.fire_at, j.name FROM runs r JOIN jobs j USING (job_id)
WHERE r.tenant_id = $1 AND r.finished_at IS NULL ORDER BY r.run_id DESC LIMIT $2;

-- name: line_heads
-- The next execution of each line that has one, those that have waited longest first.
SELECT next.execution_id, next.job_id, j.name, l.queue, next.trigger, next.attempt, next.due_at, next.queued_at
FROM lines l
CROSS JOIN LATERAL (
    SELECT execution_id, job_id, trigger, attempt, due_at, queued_at FROM executions
    WHERE state = 'queued' AND line_id = l.line_id ORDER BY rank, execution_id LIMIT 1
) AS next
LEFT JOIN jobs j USING (job_id)
WHERE l.tenant_id = $1 ORDER BY next.queued_at LIMIT $2;

-- name: paused_jobs
-- The jobs that were paused last.
SELECT job_id, name, paused_at, pause_reason, paused_until FROM jobs
WHERE tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NOT NULL ORDER BY paused_at DESC, job_id LIMIT $2;

-- name: failures_by_hour
-- Executions that failed, timed out or were lost in the $3 hours before $2, counted by the hours before it; served by a
-- partial index.
SELECT floor(extract(epoch FROM $2::timestamptz - finished_at) / 3600)::int AS hours_ago, count(*) AS n FROM history
WHERE tenant_id = $1 AND finished_at > $2::timestamptz - make_interval(hours => $3) AND finished_at <= $2
  AND state IN ('failed', 'timed_out', 'lost')
GROUP BY hours_ago;

-- name: own_limits
-- The limits of jobs that make their executions wait: overlap policy, concurrency key, and the spacing of their rate.
SELECT j.job_id, j.overlap, (j.limit_id IS NOT NULL OR coalesce(n.limit_id, 0) <> 0 OR j.keyed) AS concurrency,
       coalesce(m.per_s / m.most, 0) AS spacing_s
FROM jobs j LEFT JOIN lines n USING (line_id) LEFT JOIN limits m ON m.limit_id = n.rate_id
WHERE j.tenant_id = $1 AND j.job_id = ANY ($2::uuid[]);
