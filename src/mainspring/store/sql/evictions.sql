-- name: any_preemptible
-- Whether there has ever been a job that makes room: if not, nobody need look for one. An empty index says so.
SELECT EXISTS (SELECT FROM job_versions WHERE preemptible);

-- name: urgent_heads
-- The first few of each of these lines, with how long they have waited and whether they have asked already.
-- Arrays: lines; $2: how many of each.
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

-- name: places
-- Every worker that work can be given to, over all tenants.
SELECT s.session_id, s.tenant_id, s.slots, s.queues, s.kinds, s.labels, s.resources, s.shared, s.takes, w.name
FROM sessions s JOIN workers w USING (worker_id)
WHERE s.ended_at IS NULL AND s.state = 'active' AND s.lease_expires_at > (SELECT db_now())
ORDER BY w.name, s.session_id;

-- name: runs_of_sessions
-- What these sessions run, with what it takes of them, whether it may be asked to make room, and how often it was.
SELECT e.execution_id, e.attempt, e.session_id, e.tenant_id, e.queue, e.job_id, e.version, e.priority,
       extract(epoch FROM db_now() - e.started_at)::float8 AS ran_s, l.demand, v.preemptible AND e.cancel_at IS NULL AS may,
       (SELECT count(*) FROM evictions o WHERE o.execution_id = e.execution_id) AS evicted,
       EXISTS (SELECT FROM evictions o WHERE o.execution_id = e.execution_id AND o.attempt = e.attempt) AS leaving
FROM executions e JOIN job_versions v USING (job_id, version) LEFT JOIN lines l ON l.line_id = e.line_id
WHERE e.session_id = ANY ($1::uuid[]) AND e.state = 'running'
ORDER BY e.execution_id;

-- name: lock_for_eviction
-- Holds the urgent execution and those that are to make room, so that what the next statement sees stays true.
SELECT execution_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND tenant_id = $2
ORDER BY execution_id FOR UPDATE;

-- name: evict
-- Asks attempts to make room, all of them or none: the urgent execution still waits and has not asked before, and each of
-- the others still runs in that session, was not asked to end, and has a lower priority.
WITH urgent AS (
    SELECT e.execution_id, e.attempt, e.priority, j.name FROM executions e JOIN jobs j USING (job_id)
    WHERE e.execution_id = $1 AND e.attempt = $2 AND e.tenant_id = $3 AND e.state = 'queued'
      AND NOT EXISTS (SELECT FROM evictions v WHERE v.urgent_id = $1 AND v.urgent_attempt = $2)
), victims AS (
    SELECT e.execution_id, e.attempt FROM urgent u, unnest($5::uuid[], $6::smallint[]) AS w (execution_id, attempt)
    JOIN executions e ON e.execution_id = w.execution_id AND e.attempt = w.attempt
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
SELECT count(*) AS n, pg_notify('mainspring_settings', $3::text), pg_notify('mainspring_cancel', $4::text)
FROM asked HAVING count(*) > 0;

-- name: open_evictions
-- Places that are being made, or were, and are kept for executions that have not started yet.
SELECT v.urgent_id, v.session_id, l.demand, s.slots
FROM evictions v
JOIN executions e ON e.execution_id = v.urgent_id AND e.attempt = v.urgent_attempt AND e.state = 'queued'
JOIN sessions s ON s.session_id = v.session_id AND s.ended_at IS NULL
JOIN lines l ON l.line_id = e.line_id
WHERE v.asked_at > db_now() - make_interval(secs => $1)
GROUP BY v.urgent_id, v.session_id, l.demand, s.slots;

-- name: session_preempts
-- What this session was asked to give up, to make room.
SELECT e.execution_id, e.attempt FROM evictions v
JOIN executions e ON e.execution_id = v.execution_id AND e.attempt = v.attempt
JOIN sessions s ON s.session_id = e.session_id
WHERE e.session_id = $1 AND s.tenant_id = $2 AND e.state = 'running';

-- name: evictions_about
-- Who makes room for an execution, or for whom it did; the latest first.
SELECT v.execution_id, v.attempt, v.urgent_id, v.urgent_job, v.urgent_attempt, v.asked_at, j.name AS job,
       w.name AS worker, e.state = 'running' AND e.attempt = v.attempt AS leaving
FROM evictions v
LEFT JOIN executions e ON e.execution_id = v.execution_id LEFT JOIN jobs j USING (job_id)
LEFT JOIN sessions s ON s.session_id = v.session_id LEFT JOIN workers w USING (worker_id)
WHERE v.tenant_id = $2 AND (v.execution_id = $1 OR v.urgent_id = $1)
ORDER BY v.asked_at DESC, v.execution_id LIMIT $3;

-- name: forget_evictions
-- Of executions that are final: nobody counts them any more.
DELETE FROM evictions v
WHERE v.asked_at < db_now() - interval '1 day'
  AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = v.execution_id);
