-- A run's row is locked before its steps change, so one transaction at a time decides about them and their ctid stays
-- valid. Lock order: executions, then runs; inner runs before the runs around them, otherwise by id. Each step is found
-- by one probe of its key and changed by ctid. OFFSET 0 keeps the planner from a scan of all steps, which it prefers
-- while the table is small: connections of the hot path have no hash joins.

-- name: insert_run_steps
-- Inserts the steps of new runs, or items of a mapped or repeated step, each with the id of its future execution.
INSERT INTO run_steps (run_id, tenant_id, step, item, execution_id, state, unmet, value, keeps)
SELECT run_id, (SELECT r.tenant_id FROM runs r WHERE r.run_id = n.run_id), step, item, execution_id, 'blocked', unmet,
       value, keeps
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::uuid[], $5::int[], $6::jsonb[], $7::boolean[])
    AS n (run_id, step, item, execution_id, unmet, value, keeps);

-- name: finish_executions
-- Ends the steps of ended executions and counts them at their children and runs. Arrays: execution, state, result,
-- reason, weight, and the steps that need it. Returns ended steps (kind 0), steps without an open parent (1), and runs
-- without an open step (2).
WITH finished AS (
    UPDATE run_steps s
    SET state = e.state, result = CASE WHEN s.keeps THEN e.result END, reason = e.reason, finished_at = db_now()
    FROM unnest($1::uuid[], $2::text[], $3::jsonb[], $4::text[], $5::text[], $6::text[])
        AS e (execution_id, state, result, reason, weight, needed_by)
    CROSS JOIN LATERAL (SELECT k.ctid AS tid FROM run_steps k WHERE k.execution_id = e.execution_id OFFSET 0) AS k
    WHERE s.ctid = k.tid AND s.finished_at IS NULL
    RETURNING s.run_id, s.step, s.item, e.weight, e.needed_by
), whole AS (
    SELECT run_id, weight, needed_by FROM finished WHERE item = -1
), freed AS (
    UPDATE run_steps s
    SET unmet = s.unmet - m.n, ok = s.ok + m.ok, failed = s.failed + m.failed, skipped = s.skipped + m.skipped
    FROM (
        SELECT run_id, child::int AS step, count(*)::int AS n, count(*) FILTER (WHERE weight = 'ok')::int AS ok,
               count(*) FILTER (WHERE weight = 'failed')::int AS failed,
               count(*) FILTER (WHERE weight = 'skipped')::int AS skipped
        FROM whole CROSS JOIN LATERAL unnest(needed_by::int[]) AS child GROUP BY run_id, child
    ) AS m
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid FROM run_steps k WHERE k.run_id = m.run_id AND k.step = m.step AND k.item = -1 OFFSET 0
    ) AS k
    WHERE s.ctid = k.tid
    RETURNING s.run_id, s.step, s.state, s.unmet, s.ok, s.failed, s.skipped
), counted AS (
    UPDATE runs r
    SET open_steps = r.open_steps - c.n, failed_steps = r.failed_steps + c.failed, ends_ok = r.ends_ok + c.ends_ok
    FROM (
        SELECT run_id, count(*)::int AS n, count(*) FILTER (WHERE weight = 'failed')::int AS failed,
               count(*) FILTER (WHERE weight = 'ok' AND needed_by = '{}')::int AS ends_ok
        FROM whole GROUP BY run_id
    ) AS c
    WHERE r.run_id = c.run_id
    RETURNING r.run_id, r.open_steps, r.failed_steps, r.ends_ok
)
SELECT 0 AS kind, run_id, step, item, 0 AS ok, 0 AS failed, 0 AS skipped FROM finished
UNION ALL
SELECT 1, run_id, step, -1, ok, failed, skipped FROM freed WHERE unmet = 0 AND state = 'blocked'
UNION ALL
SELECT 2, run_id, -1, -1, 0, failed_steps, ends_ok FROM counted WHERE open_steps = 0;

-- name: finish_steps
-- Ends steps that have no execution to end them: skipped, decided by a user, waits that are over. Arrays: run, step,
-- item, state, result, reason, decided_by, flag.
UPDATE run_steps s
SET state = e.state, result = CASE WHEN s.keeps THEN e.result END, reason = e.reason, decided_by = e.decided_by,
    flag = e.flag, finished_at = db_now(), wake_at = NULL
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::jsonb[], $6::text[], $7::text[], $8::text[])
    AS e (run_id, step, item, state, result, reason, decided_by, flag)
CROSS JOIN LATERAL (
    SELECT k.ctid AS tid FROM run_steps k WHERE k.run_id = e.run_id AND k.step = e.step AND k.item = e.item OFFSET 0
) AS k
WHERE s.ctid = k.tid AND s.finished_at IS NULL
RETURNING s.run_id, s.step, s.item;

-- name: step_statuses
-- All steps of a run, with the counts of their ended parents.
SELECT step, state, flag, ok, failed, skipped FROM run_steps WHERE run_id = $1 AND item = -1;

-- name: free_step
-- Counts a failed step of a running run as ok, by the decision of a user: $4 to $8 are its state, result, reason,
-- decided_by and flag. Arrays from $9: the steps behind it, whether each opens again, and the changes of its counts.
-- $15 and $16: opened steps, and whether it is an end step. Checks that the step is in the state $3 and the run still
-- running; otherwise nothing is returned. Returns the step itself (number -1) and the opened steps without an open parent.
WITH freed AS (
    UPDATE run_steps s
    SET state = $4, result = CASE WHEN s.keeps THEN $5::jsonb END, reason = $6, decided_by = $7, flag = $8,
        finished_at = db_now()
    FROM runs r
    WHERE s.run_id = $1 AND s.step = $2 AND s.item = -1 AND s.state = $3 AND r.run_id = s.run_id AND r.state = 'running'
    RETURNING s.run_id
), recounted AS (
    UPDATE run_steps s
    SET state = CASE WHEN c.opens THEN 'blocked' ELSE s.state END, reason = CASE WHEN NOT c.opens THEN s.reason END,
        finished_at = CASE WHEN NOT c.opens THEN s.finished_at END, unmet = s.unmet + c.unmet, ok = s.ok + c.ok,
        failed = s.failed + c.failed, skipped = s.skipped + c.skipped
    FROM freed, unnest($9::int[], $10::boolean[], $11::int[], $12::int[], $13::int[], $14::int[])
        AS c (step, opens, unmet, ok, failed, skipped)
    WHERE s.run_id = freed.run_id AND s.step = c.step AND s.item = -1 AND (NOT c.opens OR s.state = 'skipped')
    RETURNING s.step, c.opens, s.unmet, s.ok, s.failed, s.skipped
), counted AS (
    UPDATE runs r SET open_steps = r.open_steps + $15, failed_steps = r.failed_steps - 1, ends_ok = r.ends_ok + $16
    FROM freed WHERE r.run_id = freed.run_id
    RETURNING r.run_id
)
SELECT -1 AS step, 0 AS ok, 0 AS failed, 0 AS skipped FROM counted
UNION ALL
SELECT step, ok, failed, skipped FROM recounted WHERE opens AND unmet = 0;

-- name: count_steps
-- Counts ended steps at their children ($1 to $6: run, step, number of ends, and number by weight) and at their runs
-- ($7 to $10: run, ended, failed, successful end steps). Returns steps without an open parent, and runs without an open
-- step.
WITH freed AS (
    UPDATE run_steps s
    SET unmet = s.unmet - m.n, ok = s.ok + m.ok, failed = s.failed + m.failed, skipped = s.skipped + m.skipped
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[])
        AS m (run_id, step, n, ok, failed, skipped)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid FROM run_steps k WHERE k.run_id = m.run_id AND k.step = m.step AND k.item = -1 OFFSET 0
    ) AS k
    WHERE s.ctid = k.tid
    RETURNING s.run_id, s.step, s.state, s.unmet, s.ok, s.failed, s.skipped
), counted AS (
    UPDATE runs r
    SET open_steps = r.open_steps - c.n, failed_steps = r.failed_steps + c.failed, ends_ok = r.ends_ok + c.ends_ok
    FROM unnest($7::uuid[], $8::int[], $9::int[], $10::int[]) AS c (run_id, n, failed, ends_ok)
    WHERE r.run_id = c.run_id
    RETURNING r.run_id, r.open_steps, r.failed_steps, r.ends_ok
)
SELECT run_id, step, ok, failed, skipped FROM freed WHERE unmet = 0 AND state = 'blocked'
UNION ALL
SELECT run_id, -1, open_steps, failed_steps, ends_ok FROM counted WHERE open_steps = 0;

-- name: count_items
-- Counts ended items at their mapped or repeated steps, and returns these. Arrays: run, step, ended, failed.
UPDATE run_steps s SET open_items = s.open_items - c.n, failed_items = s.failed_items + c.failed
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS c (run_id, step, n, failed)
WHERE s.run_id = c.run_id AND s.step = c.step AND s.item = -1 AND s.finished_at IS NULL
RETURNING s.run_id, s.step, s.items, s.open_items, s.failed_items, s.next_item;

-- part: become_executions
-- Inserts executions for the steps in `marked`. One in the line of the session in `reserved` starts there as running
-- (direct handoff); the others are queued, or wait for their due time.
fresh AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, params, created_by, line_id, limit_id,
                            session_id, attempt, started_at)
    SELECT m.execution_id, w.steps_id, r.tenant_id, w.definition, w.shard, w.priority,
           CASE WHEN m.due_at > m.now THEN 'waiting' WHEN h.session_id IS NULL THEN 'queued' ELSE 'running' END,
           'step', w.queue, claim_rank(floor(extract(epoch FROM m.due_at) * 1000)::bigint, w.priority), r.fire_at,
           m.due_at, CASE WHEN m.due_at <= m.now THEN m.now END, m.params, r.created_by, w.line_id, w.limit_id,
           h.session_id, (h.session_id IS NOT NULL)::int, CASE WHEN h.session_id IS NOT NULL THEN m.now END
    FROM marked m JOIN runs r USING (run_id)
    CROSS JOIN LATERAL (
        SELECT * FROM workflow_steps w WHERE w.job_id = r.job_id AND w.version = r.version AND w.step = m.step OFFSET 0
    ) AS w
    LEFT JOIN reserved h ON w.line_id = h.line_id AND m.due_at <= m.now
     AND r.tenant_id <> ALL (ARRAY(SELECT t.tenant_id FROM tenants t WHERE t.suspended_at IS NOT NULL))
    RETURNING execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank, state
)

-- name: release_steps
-- Turns ready steps into executions. Arrays: run, step, item, params, delay in seconds. $6: a session with a free slot
-- for an execution of line $7. Returns the most urgent execution of each line and state.
WITH reserved AS (
    SELECT session_id, $7::int AS line_id FROM sessions
    WHERE session_id = $6::uuid AND state = 'active' AND lease_expires_at > db_now()
), marked AS (
    UPDATE run_steps s SET state = 'running', released_at = now.at
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::jsonb[], $5::float8[]) AS g (run_id, step, item, params, delay_s)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid FROM run_steps k WHERE k.run_id = g.run_id AND k.step = g.step AND k.item = g.item OFFSET 0
    ) AS k
    CROSS JOIN (SELECT db_now()) AS now (at)
    WHERE s.ctid = k.tid AND s.state = 'blocked'
    RETURNING s.run_id, s.step, s.execution_id, g.params, now.at AS now,
              now.at + make_interval(secs => coalesce(g.delay_s, 0)) AS due_at
), <<become_executions>>
SELECT DISTINCT ON (line_id, state) * FROM fresh
ORDER BY line_id, state, CASE WHEN state = 'waiting' THEN due_at END, rank;

-- name: release_workflows
-- Turns ready steps into executions of the current version of other workflows. Arrays: run, step, item, params, delay
-- in seconds, workflow name. Returns the steps whose workflow does not exist, and the lines of the others.
WITH marked AS (
    UPDATE run_steps s SET state = 'running', released_at = now.at
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::jsonb[], $5::float8[], $6::text[])
             AS g (run_id, step, item, params, delay_s, workflow),
         (SELECT db_now()) AS now (at)
    WHERE s.run_id = g.run_id AND s.step = g.step AND s.item = g.item AND s.state = 'blocked'
    RETURNING s.run_id, s.step, s.item, s.execution_id, g.params, g.workflow, now.at AS now,
              now.at + make_interval(secs => coalesce(g.delay_s, 0)) AS due_at
), named AS (
    SELECT m.*, r.tenant_id, r.fire_at, r.created_by, (
        SELECT j.job_id FROM jobs j
        WHERE j.tenant_id = r.tenant_id AND j.name = m.workflow AND j.deleted_at IS NULL
          AND EXISTS (SELECT FROM workflow_versions w WHERE w.job_id = j.job_id)
    ) AS job_id
    FROM marked m JOIN runs r USING (run_id)
), fresh AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, params, created_by, line_id, limit_id)
    SELECT n.execution_id, j.job_id, n.tenant_id, j.version, j.shard, j.priority,
           CASE WHEN n.due_at > n.now THEN 'waiting' ELSE 'queued' END, 'step', j.queue,
           claim_rank(floor(extract(epoch FROM n.due_at) * 1000)::bigint, j.priority), n.fire_at, n.due_at,
           CASE WHEN n.due_at <= n.now THEN n.now END, n.params, n.created_by, j.line_id, j.limit_id
    FROM named n JOIN jobs j USING (job_id)
    RETURNING state, due_at, line_id, rank
)
SELECT run_id, step, item, NULL AS state, NULL::timestamptz AS due_at, NULL::int AS line_id, NULL::bigint AS rank
FROM named WHERE job_id IS NULL
UNION ALL
SELECT NULL, NULL, NULL, state, min(due_at), line_id, min(rank) FROM fresh GROUP BY state, line_id;

-- name: update_item_groups
-- Writes the item counts of mapped or repeated steps that start or release further items.
UPDATE run_steps s
SET state = 'running', released_at = coalesce(s.released_at, db_now()), items = g.items, open_items = g.open_items,
    next_item = g.next_item
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[]) AS g (run_id, step, items, open_items, next_item)
WHERE s.run_id = g.run_id AND s.step = g.step AND s.item = -1 AND s.finished_at IS NULL;

-- name: cancel_items
-- Cancels items that have not started: their step has failed already, or their run is cancelling.
WITH gone AS (
    UPDATE run_steps s SET state = 'cancelled', reason = $3, finished_at = db_now()
    FROM unnest($1::uuid[], $2::int[]) AS g (run_id, step)
    WHERE s.run_id = g.run_id AND s.step = g.step AND s.item >= 0 AND s.state = 'blocked'
    RETURNING s.run_id, s.step
)
UPDATE run_steps s SET open_items = s.open_items - d.n, next_item = s.items
FROM (SELECT run_id, step, count(*) AS n FROM gone GROUP BY run_id, step) AS d
WHERE s.run_id = d.run_id AND s.step = d.step AND s.item = -1 AND s.finished_at IS NULL
RETURNING s.run_id, s.step, s.items, s.open_items, s.failed_items, s.next_item;

-- name: start_waits
-- Lets steps wait for an approval, an event or an instant. Without an instant they have no timer.
UPDATE run_steps s
SET state = 'waiting', released_at = now.at, wake_at = coalesce(w.until, now.at + make_interval(secs => w.wait_s))
FROM unnest($1::uuid[], $2::int[], $3::float8[], $4::timestamptz[]) AS w (run_id, step, wait_s, until),
     (SELECT db_now()) AS now (at)
WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 AND s.state = 'blocked'
RETURNING s.wake_at;

-- name: step_outcomes
-- State, result and flag of steps, for expressions and templates.
SELECT s.run_id, s.step, s.state, s.result, s.flag
FROM unnest($1::uuid[], $2::int[]) AS w (run_id, step)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 OFFSET 0
) AS s;

-- name: step_deciders
-- Who approved, rejected, skipped or completed steps of a run.
SELECT s.step, s.decided_by FROM run_steps s
WHERE s.run_id = $1 AND s.tenant_id = $2 AND s.item = -1 AND s.decided_by IS NOT NULL;

-- name: item_outcomes
-- State, result and reason of the items of mapped or repeated steps, in order.
SELECT s.run_id, s.step, s.item, s.state, s.result, s.reason
FROM unnest($1::uuid[], $2::int[]) AS w (run_id, step)
JOIN run_steps s ON s.run_id = w.run_id AND s.step = w.step AND s.item >= 0
ORDER BY s.run_id, s.step, s.item;

-- name: items_to_release
-- Values of the next items of mapped steps. Arrays: run, step, first item, number of items.
SELECT s.run_id, s.step, s.item, s.value
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS w (run_id, step, first, n)
JOIN run_steps s ON s.run_id = w.run_id AND s.step = w.step AND s.item BETWEEN w.first AND w.first + w.n - 1
WHERE s.state = 'blocked' ORDER BY s.run_id, s.step, s.item;

-- name: failed_steps
-- The first unsuccessful steps of a run; read only when the run ends because of them.
SELECT step, state, reason FROM run_steps
WHERE run_id = $1 AND item = -1 AND state IN ('failed', 'timed_out', 'cancelled', 'lost')
ORDER BY finished_at, step LIMIT $2;

-- name: open_steps
-- Steps and items of a run that have not ended.
SELECT step, item, state, execution_id FROM run_steps
WHERE run_id = $1 AND finished_at IS NULL ORDER BY step, item;

-- name: lock_executions
-- Locks live executions in key order, before the run they belong to.
SELECT execution_id, job_id, state FROM executions
WHERE execution_id = ANY ($1::uuid[]) ORDER BY execution_id FOR UPDATE;

-- name: step_state
-- One step of a run, or one item.
SELECT step, item, state, execution_id, wake_at, flag FROM run_steps
WHERE run_id = $1 AND step = $2 AND item = $3;

-- name: due_steps
-- Steps whose timer has expired: a wait is over, an approval or an event is overdue.
SELECT s.run_id, r.tenant_id, s.step FROM run_steps s JOIN runs r USING (run_id)
WHERE s.wake_at <= (SELECT db_now()) ORDER BY s.wake_at LIMIT $1;

-- name: unadvanced_steps
-- Steps whose execution ended without their run: settled by an older program, cancelled, or deferred before a crash.
SELECT s.execution_id, h.state, h.result, coalesce(h.error, h.reason) AS reason
FROM runs r JOIN run_steps s USING (run_id)
JOIN history h ON h.execution_id = s.execution_id AND h.finished_at >= r.started_at
WHERE r.finished_at IS NULL AND s.state = 'running' AND s.execution_id IS NOT NULL LIMIT $1;

-- part: execution_of_step
-- The execution of a step, live (e) or final (h), and its worker.
LEFT JOIN executions e ON e.execution_id = s.execution_id
LEFT JOIN LATERAL (
    SELECT attempt, queued_at, started_at, duration_ms, session_id FROM history h
    WHERE h.execution_id = s.execution_id AND s.finished_at IS NOT NULL
      AND h.finished_at >= s.released_at AND h.finished_at < s.finished_at + interval '1 day'
    LIMIT 1
) AS h ON true
LEFT JOIN sessions n ON n.session_id = coalesce(e.session_id, h.session_id) LEFT JOIN workers w USING (worker_id)

-- name: steps_of_run
-- The steps of a run for display; with $2 also the items of mapped and repeated steps.
SELECT s.*, w.name AS worker_name, coalesce(e.attempt, h.attempt) AS attempt,
       coalesce(e.queued_at, h.queued_at) AS queued_at, coalesce(e.started_at, h.started_at) AS started_at,
       h.duration_ms, db_now() AS now
FROM run_steps s
<<execution_of_step>>
WHERE s.run_id = $1 AND (s.item = -1 OR $2) AND ($3::int IS NULL OR s.step = $3) ORDER BY s.step, s.item;

-- name: steps_by_ref
-- The same for the steps of one page. Arrays: step, item.
SELECT s.*, w.name AS worker_name, coalesce(e.attempt, h.attempt) AS attempt,
       coalesce(e.queued_at, h.queued_at) AS queued_at, coalesce(e.started_at, h.started_at) AS started_at,
       h.duration_ms
FROM unnest($2::int[], $3::int[]) AS p (step, item)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = $1 AND s.step = p.step AND s.item = p.item OFFSET 0
) AS s
<<execution_of_step>>
ORDER BY s.step, s.item;

-- name: step_states
-- The displayed state of each step of a run, or with $2 of each item of one step, in one row: a run may have ten
-- thousand. A released step that no worker has started is shown as queued.
SELECT array_agg(s.step ORDER BY s.step, s.item) AS steps, array_agg(s.item ORDER BY s.step, s.item) AS items,
       array_agg(CASE WHEN s.state = 'running' AND s.items IS NULL AND e.started_at IS NULL THEN 'queued' ELSE s.state END
                 ORDER BY s.step, s.item) AS states
FROM run_steps s
LEFT JOIN executions e ON s.state = 'running' AND e.execution_id = s.execution_id
WHERE s.run_id = $1 AND (s.item = -1 OR $2::int IS NOT NULL) AND ($2::int IS NULL OR s.step = $2);

-- name: steps_for_graph
-- Columns that the graph of a run shows. Does not read history, so ten thousand steps are read quickly.
SELECT s.step, s.state, s.items, s.open_items, s.reason, s.flag, s.released_at, s.finished_at, e.started_at,
       CASE WHEN s.released_at IS NOT NULL THEN s.execution_id END AS execution_id
FROM run_steps s
LEFT JOIN executions e ON s.state = 'running' AND e.execution_id = s.execution_id
WHERE s.run_id = $1 AND s.item = -1 ORDER BY s.step;

