-- A run's row is locked before the run or its steps change, so one transaction at a time decides about it. Lock order:
-- executions, then runs; inner runs before the runs around them, otherwise by id. Only the transaction that holds a run
-- settles the run's own execution.

-- name: startable_runs
-- Queued executions of workflows in claim order, with their concurrency keys.
SELECT e.execution_id, e.limit_id, e.rank
FROM lines l
CROSS JOIN LATERAL (
    SELECT execution_id, limit_id, rank FROM executions
    WHERE state = 'queued' AND line_id = l.line_id
      AND (start_by_at IS NULL OR attempt > 0 OR start_by_at > (SELECT db_now()))
    ORDER BY rank, execution_id LIMIT $1
) AS e
WHERE l.demand = '{"kind":"workflow"}'
ORDER BY e.rank, e.execution_id LIMIT $1;

-- name: workflow_lines
-- The lines of workflows, and the newest line of all.
SELECT line_id, false AS newest FROM lines WHERE demand = '{"kind":"workflow"}'
UNION ALL
SELECT max(line_id), true FROM lines;

-- name: claim_runs
-- Sets queued executions of workflows to running, under the session id $2 that stands for the run engine.
WITH free AS (
    SELECT execution_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND state = 'queued'
    ORDER BY execution_id FOR UPDATE SKIP LOCKED
)
UPDATE executions e SET state = 'running', session_id = $2, attempt = e.attempt + 1, started_at = db_now()
FROM free WHERE e.execution_id = ANY (ARRAY[free.execution_id]) AND e.state = 'queued'
RETURNING e.execution_id, e.job_id, e.tenant_id, e.version, e.attempt, e.fire_at, e.params, e.created_by,
          e.started_at, (
    SELECT r.depth + 1 FROM run_steps s JOIN runs r USING (run_id) WHERE s.execution_id = e.execution_id
) AS depth;

-- name: insert_runs
-- Inserts runs. Arrays, one entry per run.
INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, depth, state, open_steps, params, fire_at, started_at,
                  timeout_at, sla_at, created_by, rerun_of)
SELECT n.run_id, n.tenant_id, n.job_id, n.version, n.attempt, n.depth, 'running', n.open_steps, n.params, n.fire_at,
       n.started_at, n.started_at + make_interval(secs => n.timeout_s), n.started_at + make_interval(secs => n.sla_s),
       n.created_by, n.rerun_of
FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::int[], $5::smallint[], $6::smallint[], $7::int[], $8::jsonb[],
            $9::timestamptz[], $10::timestamptz[], $11::float8[], $12::float8[], $13::text[], $14::uuid[])
    AS n (run_id, tenant_id, job_id, version, attempt, depth, open_steps, params, fire_at, started_at, timeout_s, sla_s,
          created_by, rerun_of);

-- name: lock_run
-- Locks one run.
SELECT r.* FROM runs r WHERE r.run_id = $1 AND r.tenant_id = $2 FOR UPDATE OF r;

-- name: run_principals
-- Who started a run, the runs that it repeats and the runs around it, and who wrote their versions of the workflows.
WITH RECURSIVE behind AS (
    SELECT r.run_id, r.job_id, r.version, r.created_by, r.rerun_of, 0 AS n
    FROM runs r WHERE r.run_id = $1 AND r.tenant_id = $2
    UNION ALL
    SELECT o.run_id, o.job_id, o.version, o.created_by, o.rerun_of, b.n + 1
    FROM behind b CROSS JOIN LATERAL (
        SELECT r.* FROM runs r WHERE r.run_id = b.rerun_of
        UNION ALL
        SELECT r.* FROM run_steps s JOIN runs r ON r.run_id = s.run_id WHERE s.execution_id = b.run_id
    ) AS o
    WHERE b.n < 100
)
SELECT created_by AS principal FROM behind WHERE created_by IS NOT NULL
UNION
SELECT v.created_by FROM behind b JOIN workflow_versions v ON v.job_id = b.job_id AND v.version = b.version;

-- name: lock_runs
-- Locks the runs of these executions; returns them with the step that each execution is.
SELECT r.*, s.execution_id, s.step, s.item
FROM unnest($1::uuid[]) AS e (execution_id)
CROSS JOIN LATERAL (SELECT s.* FROM run_steps s WHERE s.execution_id = e.execution_id OFFSET 0) AS s
JOIN runs r USING (run_id)
ORDER BY r.depth DESC, r.run_id FOR UPDATE OF r;

-- name: close_runs
-- Closes runs whose steps have all ended. Arrays: run, state, reason.
UPDATE runs r SET state = c.state, reason = coalesce(r.reason, c.reason), finished_at = db_now()
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS c (run_id, state, reason)
WHERE r.run_id = c.run_id AND r.finished_at IS NULL AND r.open_steps = 0
RETURNING r.run_id, r.state, r.attempt, r.reason, extract(epoch FROM r.finished_at - r.started_at)::float8 AS lasted_s,
          CASE WHEN r.sla_at IS NOT NULL THEN r.state = 'succeeded' AND r.finished_at <= r.sla_at END AS in_time;

-- name: cancel_run
-- Marks a run as cancelling: from now on only steps with the rule `always` are released.
UPDATE runs SET state = 'cancelling', ends_as = $3, reason = $4
WHERE run_id = $1 AND tenant_id = $2 AND state = 'running'
RETURNING run_id;

-- name: insert_run_event
-- Stores an event of a run, or of an execution that will become a run; no row if the run has one of that name.
INSERT INTO run_events (run_id, tenant_id, name, payload, received_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id, name) DO NOTHING RETURNING received_at;

-- name: event_of_run
-- An event that a run has received.
SELECT payload, received_at, received_by FROM run_events WHERE run_id = $1 AND name = $2;

-- name: timed_out_runs
-- Running runs past their timeout.
SELECT run_id, tenant_id FROM runs
WHERE timeout_at <= (SELECT db_now()) AND finished_at IS NULL AND state = 'running' ORDER BY timeout_at LIMIT $1;

-- name: next_run_timer
-- Seconds until the next step wakes or the next run times out.
SELECT extract(epoch FROM least(
    (SELECT min(wake_at) FROM run_steps WHERE wake_at IS NOT NULL),
    (SELECT min(timeout_at) FROM runs WHERE timeout_at IS NOT NULL AND finished_at IS NULL AND state = 'running')
) - db_now())::float8;

-- name: runs_to_cancel
-- Running runs whose own execution has a cancel request, by a user or the overlap policy.
SELECT e.execution_id, e.tenant_id, e.cancel_reason FROM executions e JOIN runs r ON r.run_id = e.execution_id
WHERE e.session_id = $1 AND e.cancel_at IS NOT NULL AND r.state = 'running' LIMIT $2;

-- name: half_cancelled_runs
-- Cancelling runs with a waiting step, or a live execution without a cancel request.
SELECT DISTINCT r.run_id, r.tenant_id FROM runs r JOIN run_steps s USING (run_id)
LEFT JOIN executions e ON e.execution_id = s.execution_id
WHERE r.state = 'cancelling' AND s.finished_at IS NULL
  AND (s.state = 'waiting' OR e.execution_id IS NOT NULL AND e.cancel_at IS NULL) LIMIT $1;

-- name: sla_ratios
-- By workflow, the share of runs due in the last day that succeeded in time; of the newest $2 runs.
SELECT j.name, count(*) FILTER (WHERE r.state = 'succeeded' AND r.finished_at <= r.sla_at)::float8 / count(*) AS ratio
FROM (
    SELECT job_id, tenant_id, state, finished_at, sla_at FROM runs
    WHERE sla_at <= (SELECT db_now()) AND sla_at > (SELECT db_now()) - interval '1 day'
    ORDER BY sla_at DESC LIMIT $2
) AS r JOIN jobs j USING (job_id)
WHERE r.tenant_id = $1 GROUP BY j.name;

-- name: forget_runs
-- Deletes up to $2 runs that ended $1 seconds ago with their steps and events, and events of runs that never started.
WITH old AS (
    SELECT run_id FROM runs WHERE finished_at < (SELECT db_now()) - make_interval(secs => $1)
    ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED
), steps AS (
    DELETE FROM run_steps s USING old WHERE s.run_id = old.run_id
), events AS (
    DELETE FROM run_events e USING old WHERE e.run_id = old.run_id
), unheard AS (
    DELETE FROM run_events e USING (
        SELECT x.run_id FROM run_events x
        WHERE x.received_at < (SELECT db_now()) - make_interval(secs => $1)
          AND NOT EXISTS (SELECT FROM runs r WHERE r.run_id = x.run_id)
          AND NOT EXISTS (SELECT FROM executions q WHERE q.execution_id = x.run_id)
        LIMIT $2
    ) AS never WHERE e.run_id = never.run_id
)
DELETE FROM runs r USING old WHERE r.run_id = old.run_id AND r.finished_at IS NOT NULL
RETURNING r.run_id;

-- name: run_by_id
-- One run.
SELECT r.*, j.name, j.deleted_at FROM runs r JOIN jobs j USING (job_id) WHERE r.run_id = $1 AND r.tenant_id = $2;

-- name: run_of_execution
-- The run that an execution is, or is a step of.
SELECT run_id FROM runs WHERE run_id = $1 AND tenant_id = $2
UNION ALL
SELECT run_id FROM run_steps WHERE execution_id = $1 AND tenant_id = $2 LIMIT 1;

-- name: list_runs
-- A page of runs, newest first, before an id; optionally of one workflow and of some states.
SELECT r.*, j.name FROM runs r JOIN jobs j USING (job_id)
WHERE r.tenant_id = $1 AND r.run_id < $2 AND ($4::uuid IS NULL OR r.job_id = $4)
  AND ($5::text[] IS NULL OR r.state = ANY ($5))
ORDER BY r.run_id DESC LIMIT $3;

-- name: list_pending_runs
-- Executions of workflows that have not started, newest first, before an id: of one workflow in any live state; of all
-- workflows only queued ones, the last of each line.
SELECT e.execution_id AS run_id, e.job_id, e.version, e.params, e.fire_at, e.created_by, j.name
FROM (
    SELECT e.* FROM executions e
    WHERE $4::uuid IS NOT NULL AND e.job_id = $4 AND e.state IN ('waiting', 'queued', 'blocked')
    UNION ALL
    SELECT e.* FROM lines l
    CROSS JOIN LATERAL (
        SELECT * FROM executions e WHERE e.state = 'queued' AND e.line_id = l.line_id AND e.execution_id < $2
        ORDER BY e.rank DESC, e.execution_id DESC LIMIT $3
    ) AS e
    WHERE $4::uuid IS NULL AND l.tenant_id = $1 AND l.demand = '{"kind":"workflow"}'
) AS e JOIN jobs j USING (job_id)
WHERE e.tenant_id = $1 AND e.execution_id < $2
ORDER BY e.execution_id DESC LIMIT $3;

-- name: grid_of_runs
-- The last runs of a workflow, newest first, each with the states of its steps in definition order.
SELECT r.run_id, r.state, r.version, r.fire_at, r.started_at, r.finished_at, s.states
FROM (
    SELECT * FROM runs WHERE job_id = $1 AND tenant_id = $2 ORDER BY run_id DESC LIMIT $3
) AS r
CROSS JOIN LATERAL (
    SELECT array_agg(state ORDER BY step) AS states FROM run_steps WHERE run_id = r.run_id AND item = -1
) AS s
ORDER BY r.run_id DESC;
