-- name: pending_execution
-- A live execution with everything that decides when it starts.
SELECT e.execution_id, e.job_id, e.state, e.attempt, e.due_at, e.queued_at, e.started_at, e.rank, e.chained, e.limit_id,
       e.needs_by_at, e.fire_at, j.flexible,
       j.name AS job_name, w.name AS worker_name, l.line_id, coalesce(l.queue, e.queue) AS queue, l.demand,
       coalesce(l.rate_id, 0) AS rate_id, db_now() AS now
FROM executions e JOIN jobs j USING (job_id)
LEFT JOIN lines l ON l.line_id = e.line_id
LEFT JOIN sessions s ON s.session_id = e.session_id LEFT JOIN workers w USING (worker_id)
WHERE e.execution_id = $1 AND e.tenant_id = $2;

-- name: pending_of_job
-- The live executions of a job, running ones first, then in starting order.
SELECT execution_id, state FROM executions WHERE job_id = $1 AND tenant_id = $2
ORDER BY state = 'running' DESC, rank, execution_id LIMIT $3;

-- name: live_sessions
-- Live sessions of the workers that may run a tenant's executions: its own, and shared ones.
SELECT w.name, s.state, s.slots, s.busy, s.queues, s.kinds, s.labels, s.resources, s.takes, s.function_set
FROM sessions s JOIN workers w USING (worker_id)
WHERE s.ended_at IS NULL AND s.lease_expires_at > db_now() AND (s.tenant_id = $1 OR s.shared)
ORDER BY w.name LIMIT $2;

-- name: ahead_in_line
-- Executions ahead in a line; counted up to $5.
SELECT count(*) FROM (
    SELECT FROM executions
    WHERE state = 'queued' AND line_id = $1 AND (rank, execution_id) < ($2, $3) AND tenant_id = $4 LIMIT $5
) AS before;

-- name: running_of_queue
-- Running executions of a queue, and of its tenant.
SELECT count(*) FILTER (WHERE queue = $2) AS of_queue, count(*) AS of_tenant FROM executions
WHERE session_id IS NOT NULL AND tenant_id = $1;

-- name: longest_running
-- The executions of a tenant that have run longest on these workers. Reads running executions only.
SELECT e.execution_id FROM executions e JOIN sessions s USING (session_id) JOIN workers w USING (worker_id)
WHERE e.session_id IS NOT NULL AND e.tenant_id = $1 AND w.name = ANY ($2::text[]) AND s.ended_at IS NULL
ORDER BY e.started_at, e.execution_id LIMIT $3;
