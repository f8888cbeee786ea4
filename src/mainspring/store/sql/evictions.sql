-- name: any_preemptible
-- Whether any job version is preemptible; if not, preemption is off. A probe of a partial index.
SELECT EXISTS (SELECT FROM job_versions WHERE preemptible);

-- name: urgent_executions
-- The first $2 executions of each of the lines $1, with their waiting time and whether they have already preempted.
SELECT e.execution_id, e.attempt, e.line_id, e.job_id, e.version, e.priority, e.rank,
       extract(epoch FROM db_now() - e.queued_at)::float8 AS waited_s,
       EXISTS (SELECT FROM evictions v WHERE v.urgent_id = e.execution_id AND v.urgent_attempt = e.attempt) AS asked
FROM unnest($1::int[]) AS l (line_id)
CROSS JOIN LATERAL (
    SELECT * FROM executions
    WHERE state = 'queued' AND line_id = l.line_id
      AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
    ORDER BY rank, execution_id LIMIT $2
) AS e
ORDER BY e.priority DESC, e.rank, e.execution_id;

-- name: active_workers
-- Every worker that accepts work, over all tenants.
SELECT s.session_id, s.tenant_id, s.slots, s.queues, s.kinds, s.labels, s.resources, s.shared, s.takes, w.name,
       s.function_set
FROM sessions s JOIN workers w USING (worker_id)
WHERE s.ended_at IS NULL AND s.state = 'active' AND s.lease_expires_at > (SELECT db_now())
ORDER BY w.name, s.session_id;

-- name: running_attempts
-- The running attempts of these sessions: demand, whether they may be evicted, and how often they were.
SELECT e.execution_id, e.attempt, e.session_id, e.tenant_id, e.queue, e.job_id, e.version, e.priority,
       extract(epoch FROM db_now() - e.started_at)::float8 AS ran_s, l.demand, v.preemptible AND e.cancel_at IS NULL AS may,
       (SELECT count(*) FROM evictions o WHERE o.execution_id = e.execution_id) AS evicted,
       EXISTS (SELECT FROM evictions o WHERE o.execution_id = e.execution_id AND o.attempt = e.attempt) AS leaving
FROM executions e JOIN job_versions v USING (job_id, version) LEFT JOIN lines l ON l.line_id = e.line_id
WHERE e.session_id = ANY ($1::uuid[]) AND e.state = 'running'
ORDER BY e.execution_id;

-- name: lock_for_eviction
-- Locks the urgent execution and its victims, so that what the next statement checks stays true.
SELECT execution_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND tenant_id = $2
ORDER BY execution_id FOR UPDATE;

-- name: evict
-- Evicts all victims or none. Checks that the urgent execution is still queued and has not preempted before, and that
-- each victim still runs in that session, is not being cancelled or evicted, and has a lower priority.
WITH urgent AS (
    SELECT e.execution_id, e.attempt, e.priority, j.name FROM executions e JOIN jobs j USING (job_id)
    WHERE e.execution_id = $1 AND e.attempt = $2 AND e.tenant_id = $3 AND e.state = 'queued'
      AND NOT EXISTS (SELECT FROM evictions v WHERE v.urgent_id = $1 AND v.urgent_attempt = $2)
), victims AS (
    SELECT e.execution_id, e.attempt FROM urgent u, unnest($5::uuid[], $6::smallint[]) AS w (execution_id, attempt)
    JOIN executions e ON e.execution_id = ANY (ARRAY[w.execution_id]) AND e.attempt = w.attempt
    JOIN job_versions v ON v.job_id = e.job_id AND v.version = e.version
    WHERE e.state = 'running' AND e.session_id = $4 AND e.tenant_id = $3 AND e.cancel_at IS NULL
      AND e.priority < u.priority AND v.preemptible
      AND NOT EXISTS (SELECT FROM evictions o WHERE o.execution_id = e.execution_id AND o.attempt = e.attempt)
), asked AS (
    INSERT INTO evictions (execution_id, attempt, tenant_id, session_id, urgent_id, urgent_job, urgent_attempt)
    SELECT v.execution_id, v.attempt, $3, $4, u.execution_id, u.name, u.attempt FROM victims v, urgent u
    WHERE (SELECT count(*) FROM victims) = cardinality($5)
    RETURNING execution_id
)
SELECT execution_id FROM asked;

-- name: open_evictions
-- Capacity that evictions free, or have freed, for executions that have not started yet.
SELECT v.urgent_id, v.session_id, l.demand, s.slots
FROM evictions v
JOIN executions e ON e.execution_id = v.urgent_id AND e.attempt = v.urgent_attempt AND e.state = 'queued'
JOIN sessions s ON s.session_id = v.session_id AND s.ended_at IS NULL
JOIN lines l ON l.line_id = e.line_id
WHERE v.asked_at > db_now() - make_interval(secs => $1)
GROUP BY v.urgent_id, v.session_id, l.demand, s.slots;

-- name: session_preempts
-- The attempts of this session that are being evicted.
SELECT e.execution_id, e.attempt FROM evictions v
JOIN executions e ON e.execution_id = v.execution_id AND e.attempt = v.attempt
JOIN sessions s ON s.session_id = e.session_id
WHERE e.session_id = $1 AND s.tenant_id = $2 AND e.state = 'running';

-- name: evictions_about
-- Evictions in which an execution was the victim or the urgent one; the latest first.
SELECT v.execution_id, v.attempt, v.urgent_id, v.urgent_job, v.urgent_attempt, v.asked_at, j.name AS job,
       w.name AS worker, e.state = 'running' AND e.attempt = v.attempt AS leaving
FROM evictions v
LEFT JOIN executions e ON e.execution_id = v.execution_id LEFT JOIN jobs j USING (job_id)
LEFT JOIN sessions s ON s.session_id = v.session_id LEFT JOIN workers w USING (worker_id)
WHERE v.tenant_id = $2 AND (v.execution_id = $1 OR v.urgent_id = $1)
ORDER BY v.asked_at DESC, v.execution_id LIMIT $3;

-- name: forget_evictions
-- Deletes evictions of final executions: they are no longer counted.
DELETE FROM evictions v
WHERE v.asked_at < db_now() - interval '1 day'
  AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = v.execution_id);
