-- Whoever moves a run on holds its row first, so its steps are decided by one at a time, and their places (ctid) keep
-- still. Runs inside runs are held before those around them, otherwise by id. Executions come before runs, except a run's
-- own, which only its holder settles.
-- Each step is found by one probe of its key and changed at its place. OFFSET keeps the planner from reading all steps
-- instead, as it does while the table is young: connections of the hot path have no hash joins.

-- name: startable_runs
-- Queued executions of workflows, best first, with the concurrency key they count against.
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
-- Where runs wait to be started, and the newest line of all.
SELECT line_id, false AS newest FROM lines WHERE demand = '{"kind":"workflow"}'
UNION ALL
SELECT max(line_id), true FROM lines;

-- name: claim_runs
-- Takes queued executions of workflows: they run until their last step has ended. $2: in place of a session.
WITH free AS (
    SELECT execution_id FROM executions WHERE execution_id = ANY ($1::uuid[]) AND state = 'queued'
    ORDER BY execution_id FOR UPDATE SKIP LOCKED
)
UPDATE executions e SET state = 'running', session_id = $2, attempt = e.attempt + 1, started_at = db_now()
FROM free WHERE e.execution_id = free.execution_id AND e.state = 'queued'
RETURNING e.execution_id, e.job_id, e.tenant_id, e.version, e.attempt, e.fire_at, e.params, e.created_by,
          e.started_at, (
    SELECT r.depth + 1 FROM run_steps s JOIN runs r USING (run_id) WHERE s.execution_id = e.execution_id
) AS depth;

-- name: insert_runs
-- Runs begin. Arrays, one entry per run.
WITH fresh AS (
INSERT INTO runs (run_id, tenant_id, job_id, version, attempt, depth, state, open_steps, params, fire_at, started_at,
                  timeout_at, sla_at, created_by, rerun_of)
SELECT n.run_id, n.tenant_id, n.job_id, n.version, n.attempt, n.depth, 'running', n.open_steps, n.params, n.fire_at,
       n.started_at, n.started_at + make_interval(secs => n.timeout_s), n.started_at + make_interval(secs => n.sla_s),
       n.created_by, n.rerun_of
FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::int[], $5::smallint[], $6::smallint[], $7::int[], $8::jsonb[],
            $9::timestamptz[], $10::timestamptz[], $11::float8[], $12::float8[], $13::text[], $14::uuid[])
    AS n (run_id, tenant_id, job_id, version, attempt, depth, open_steps, params, fire_at, started_at, timeout_s, sla_s,
          created_by, rerun_of)
RETURNING timeout_at
)
SELECT pg_notify('mainspring_runs', 'wake') FROM fresh WHERE timeout_at IS NOT NULL LIMIT 1;

-- name: insert_run_steps
-- The steps of new runs, or the items of a mapped or repeated step, each with the id its execution will have.
INSERT INTO run_steps (run_id, tenant_id, step, item, execution_id, state, unmet, value, keeps)
SELECT run_id, (SELECT r.tenant_id FROM runs r WHERE r.run_id = n.run_id), step, item, execution_id, 'blocked', unmet,
       value, keeps
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::uuid[], $5::int[], $6::jsonb[], $7::boolean[])
    AS n (run_id, step, item, execution_id, unmet, value, keeps);

-- name: hold_run
-- One run, held.
SELECT r.* FROM runs r WHERE r.run_id = $1 AND r.tenant_id = $2 FOR UPDATE OF r;

-- name: hold_runs
-- The runs that wait for these executions, held; and which of their steps the executions are.
SELECT r.*, s.execution_id, s.step, s.item
FROM unnest($1::uuid[]) AS e (execution_id)
CROSS JOIN LATERAL (SELECT s.* FROM run_steps s WHERE s.execution_id = e.execution_id OFFSET 0) AS s
JOIN runs r USING (run_id)
ORDER BY r.depth DESC, r.run_id FOR UPDATE OF r;

-- name: finish_executions
-- Executions have ended, and with them the steps they are. Arrays: execution, state, result, reason, how it counts, and the
-- steps that need it. What ends here is counted there and at its run. Returns what has ended (0), steps that nothing
-- before is open for (1), and runs with no open step (2). The caller holds the runs.
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
-- Steps end that no execution ends: skipped, decided by a person, over. Arrays: run, step, item, state, result, reason,
-- who decided, flag. The caller holds the runs.
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

-- name: count_steps
-- What has just ended is counted at the steps that need it ($1 to $6: run, step, how many, and how) and at its run ($7 to
-- $10: run, how many, failed, ends reached). Returns steps that nothing before is open for, and runs with no open step.
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
-- Items have ended; returns the mapped or repeated steps they belong to. Arrays: run, step, how many, how many failed.
UPDATE run_steps s SET open_items = s.open_items - c.n, failed_items = s.failed_items + c.failed
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS c (run_id, step, n, failed)
WHERE s.run_id = c.run_id AND s.step = c.step AND s.item = -1 AND s.finished_at IS NULL
RETURNING s.run_id, s.step, s.items, s.open_items, s.failed_items, s.next_item;

-- part: become_executions
-- What is `marked` is an execution from now on. What waits in a line that the session of `here` waits for, if there is
-- one, begins as running there, without ever being queued.
fresh AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, params, created_by, line_id, limit_id,
                            session_id, attempt, started_at)
    SELECT m.execution_id, w.steps_id, r.tenant_id, w.definition, w.shard, w.priority,
           CASE WHEN m.due_at > m.now THEN 'waiting' WHEN h.session_id IS NULL THEN 'queued' ELSE 'running' END,
           'step', w.queue, floor(extract(epoch FROM m.due_at) * 1000)::bigint - w.priority * 900000, r.fire_at,
           m.due_at, CASE WHEN m.due_at <= m.now THEN m.now END, m.params, r.created_by, w.line_id, w.limit_id,
           h.session_id, (h.session_id IS NOT NULL)::int, CASE WHEN h.session_id IS NOT NULL THEN m.now END
    FROM marked m JOIN runs r USING (run_id)
    CROSS JOIN LATERAL (
        SELECT * FROM workflow_steps w WHERE w.job_id = r.job_id AND w.version = r.version AND w.step = m.step OFFSET 0
    ) AS w
    LEFT JOIN here h ON w.line_id = h.line_id AND m.due_at <= m.now
    RETURNING execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank, state
), told AS (
    SELECT pg_notify('mainspring_queued', line_id || ' ' || min(rank)) FROM fresh WHERE state = 'queued' GROUP BY line_id
    UNION ALL
    SELECT pg_notify('mainspring_shards', 'wait ' || floor(extract(epoch FROM min(due_at)) * 1000))
    FROM fresh WHERE state = 'waiting' HAVING count(*) > 0
)

-- name: release_steps
-- Steps whose turn has come become executions. Arrays: run, step, item, params, seconds from now. $6: a session that
-- waits for work of the line $7.
WITH here AS (
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
SELECT fresh.*, (SELECT count(*) FROM told) AS told FROM fresh LIMIT 1;

-- name: release_workflows
-- Steps that are workflows become executions of these, as they are now. Arrays: run, step, item, params, seconds from now,
-- name. Returns the steps whose workflow is not there.
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
           floor(extract(epoch FROM n.due_at) * 1000)::bigint - j.priority * 900000, n.fire_at, n.due_at,
           CASE WHEN n.due_at <= n.now THEN n.now END, n.params, n.created_by, j.line_id, j.limit_id
    FROM named n JOIN jobs j USING (job_id)
    RETURNING state, due_at, line_id, rank
), told AS (
    SELECT pg_notify('mainspring_queued', line_id || ' ' || min(rank)) FROM fresh WHERE state = 'queued' GROUP BY line_id
    UNION ALL
    SELECT pg_notify('mainspring_shards', 'wait ' || floor(extract(epoch FROM min(due_at)) * 1000))
    FROM fresh WHERE state = 'waiting' HAVING count(*) > 0
)
-- The count stands outside: inside it would be looked at, and anybody told, only if a workflow is not there.
SELECT n.run_id, n.step, n.item, t.told FROM (SELECT count(*) AS told FROM told) AS t LEFT JOIN named n ON n.job_id IS NULL;

-- name: open_groups
-- Mapped or repeated steps begin, or get further: how many items there are, and which comes next.
UPDATE run_steps s
SET state = 'running', released_at = coalesce(s.released_at, db_now()), items = g.items, open_items = g.open_items,
    next_item = g.next_item
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[]) AS g (run_id, step, items, open_items, next_item)
WHERE s.run_id = g.run_id AND s.step = g.step AND s.item = -1 AND s.finished_at IS NULL;

-- name: drop_items
-- Items that have not begun never will: their step has failed already, or their run is being cancelled.
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

-- name: wait_steps
-- Steps that wait for a person, an event or a time; with a time they are looked at then, without one never.
UPDATE run_steps s
SET state = 'waiting', released_at = now.at, wake_at = coalesce(w.until, now.at + make_interval(secs => w.wait_s))
FROM unnest($1::uuid[], $2::int[], $3::float8[], $4::timestamptz[]) AS w (run_id, step, wait_s, until),
     (SELECT db_now()) AS now (at)
WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 AND s.state = 'blocked'
RETURNING CASE WHEN s.wake_at IS NOT NULL THEN pg_notify('mainspring_runs', 'wake') END;

-- name: step_outcomes
-- How steps ended and what they gave, as far as expressions and templates want to know.
SELECT s.run_id, s.step, s.state, s.result, s.flag
FROM unnest($1::uuid[], $2::int[]) AS w (run_id, step)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 OFFSET 0
) AS s;

-- name: item_outcomes
-- What the items of mapped or repeated steps gave, in order.
SELECT s.run_id, s.step, s.item, s.state, s.result, s.reason
FROM unnest($1::uuid[], $2::int[]) AS w (run_id, step)
JOIN run_steps s ON s.run_id = w.run_id AND s.step = w.step AND s.item >= 0
ORDER BY s.run_id, s.step, s.item;

-- name: items_to_release
-- The values of items that come next. Arrays: run, step, first, how many.
SELECT s.run_id, s.step, s.item, s.value
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[]) AS w (run_id, step, first, n)
JOIN run_steps s ON s.run_id = w.run_id AND s.step = w.step AND s.item BETWEEN w.first AND w.first + w.n - 1
WHERE s.state = 'blocked' ORDER BY s.run_id, s.step, s.item;

-- name: close_runs
-- Runs end whose steps have all ended. Arrays: run, state, reason.
UPDATE runs r SET state = c.state, reason = coalesce(r.reason, c.reason), finished_at = db_now()
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS c (run_id, state, reason)
WHERE r.run_id = c.run_id AND r.finished_at IS NULL AND r.open_steps = 0
RETURNING r.run_id, r.state, r.attempt, r.reason, extract(epoch FROM r.finished_at - r.started_at)::float8 AS lasted_s,
          CASE WHEN r.sla_at IS NOT NULL THEN r.state = 'succeeded' AND r.finished_at <= r.sla_at END AS in_time;

-- name: failed_steps
-- The first steps of a run that did not succeed, asked only when it ends because of them.
SELECT step, state, reason FROM run_steps
WHERE run_id = $1 AND item = -1 AND state IN ('failed', 'timed_out', 'cancelled', 'lost')
ORDER BY finished_at, step LIMIT $2;

-- name: cancel_run
-- A run is to end: from now on nothing of it is released but what always is.
UPDATE runs SET state = 'cancelling', ends_as = $3, reason = $4
WHERE run_id = $1 AND tenant_id = $2 AND state = 'running'
RETURNING run_id;

-- name: stoppable_steps
-- What of a cancelled run has not begun or waits for somebody, and what of it lives.
SELECT step, item, state, execution_id FROM run_steps
WHERE run_id = $1 AND finished_at IS NULL ORDER BY step, item;

-- name: lock_executions
-- Live executions, held in key order, before the run they belong to.
SELECT execution_id, job_id, state FROM executions
WHERE execution_id = ANY ($1::uuid[]) ORDER BY execution_id FOR UPDATE;

-- name: step_of_run
-- One step of a run, or an item of it.
SELECT step, item, state, execution_id, wake_at, flag FROM run_steps
WHERE run_id = $1 AND step = $2 AND item = $3;

-- name: insert_event
-- An event arrives at a run, or at an execution that will be one; twice is told. The wake is for who passed over that
-- execution because it was held.
INSERT INTO run_events (run_id, tenant_id, name, payload, received_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id, name) DO NOTHING RETURNING received_at, pg_notify('mainspring_runs', 'wake');

-- name: event_of_run
-- An event a run has received.
SELECT payload, received_at, received_by FROM run_events WHERE run_id = $1 AND name = $2;

-- name: due_steps
-- Steps whose time has come: a wait is over, an approval or an event did not come.
SELECT s.run_id, r.tenant_id, s.step FROM run_steps s JOIN runs r USING (run_id)
WHERE s.wake_at <= (SELECT db_now()) ORDER BY s.wake_at LIMIT $1;

-- name: due_runs
-- Runs that have taken longer than they may.
SELECT run_id, tenant_id FROM runs
WHERE timeout_at <= (SELECT db_now()) AND finished_at IS NULL AND state = 'running' ORDER BY timeout_at LIMIT $1;

-- name: next_wake
-- Seconds until the next step or run has something to be looked at.
SELECT extract(epoch FROM least(
    (SELECT min(wake_at) FROM run_steps WHERE wake_at IS NOT NULL),
    (SELECT min(timeout_at) FROM runs WHERE timeout_at IS NOT NULL AND finished_at IS NULL AND state = 'running')
) - db_now())::float8;

-- name: asked_to_end
-- Runs whose own execution somebody wants to end: by its id, or the overlap policy.
SELECT e.execution_id, e.tenant_id, e.cancel_reason FROM executions e JOIN runs r ON r.run_id = e.execution_id
WHERE e.session_id = $1 AND e.cancel_at IS NOT NULL AND r.state = 'running' LIMIT $2;

-- name: stray_steps
-- Steps whose execution has ended without their run having heard of it: settled by an older program, or cancelled.
SELECT s.execution_id, h.state, h.result, coalesce(h.error, h.reason) AS reason
FROM runs r JOIN run_steps s USING (run_id)
JOIN history h ON h.execution_id = s.execution_id AND h.finished_at >= r.started_at
WHERE r.finished_at IS NULL AND s.state = 'running' AND s.execution_id IS NOT NULL LIMIT $1;

-- name: half_cancelled
-- Cancelled runs with something that has not been told to end.
SELECT DISTINCT r.run_id, r.tenant_id FROM runs r JOIN run_steps s USING (run_id)
LEFT JOIN executions e ON e.execution_id = s.execution_id
WHERE r.state = 'cancelling' AND s.finished_at IS NULL
  AND (s.state = 'waiting' OR e.execution_id IS NOT NULL AND e.cancel_at IS NULL) LIMIT $1;

-- name: sla_ratios
-- Of the runs of each workflow that should have succeeded by now, in the last day, the share that did; of the newest $2.
SELECT j.name, count(*) FILTER (WHERE r.state = 'succeeded' AND r.finished_at <= r.sla_at)::float8 / count(*) AS ratio
FROM (
    SELECT job_id, tenant_id, state, finished_at, sla_at FROM runs
    WHERE sla_at <= (SELECT db_now()) AND sla_at > (SELECT db_now()) - interval '1 day'
    ORDER BY sla_at DESC LIMIT $2
) AS r JOIN jobs j USING (job_id)
WHERE r.tenant_id = $1 GROUP BY j.name;

-- name: forget_runs
-- Runs that ended so many seconds ago, with their steps and events, and events of runs that never began; a portion at a
-- time.
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

-- name: run_of
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

-- name: runs_ahead
-- Executions of workflows that have not begun, newest first, before an id; of one workflow those that wait for anything,
-- of all of them only those in the queue, of each line its last.
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

-- part: execution_of_step
-- The execution of a step, live (e) or final (h), and the worker it is or was on.
LEFT JOIN executions e ON e.execution_id = s.execution_id
LEFT JOIN LATERAL (
    SELECT attempt, queued_at, started_at, session_id FROM history h
    WHERE h.execution_id = s.execution_id AND s.finished_at IS NOT NULL
      AND h.finished_at >= s.released_at AND h.finished_at < s.finished_at + interval '1 day'
    LIMIT 1
) AS h ON true
LEFT JOIN sessions n ON n.session_id = coalesce(e.session_id, h.session_id) LEFT JOIN workers w USING (worker_id)

-- name: steps_of_run
-- The steps of a run as people see them; of a mapped or repeated one also its items, if asked for.
SELECT s.*, w.name AS worker_name, coalesce(e.attempt, h.attempt) AS attempt,
       coalesce(e.queued_at, h.queued_at) AS queued_at, coalesce(e.started_at, h.started_at) AS started_at, db_now() AS now
FROM run_steps s
<<execution_of_step>>
WHERE s.run_id = $1 AND (s.item = -1 OR $2) AND ($3::int IS NULL OR s.step = $3) ORDER BY s.step, s.item;

-- name: some_steps_of_run
-- The same of those on one page. Arrays: step, item.
SELECT s.*, w.name AS worker_name, coalesce(e.attempt, h.attempt) AS attempt,
       coalesce(e.queued_at, h.queued_at) AS queued_at, coalesce(e.started_at, h.started_at) AS started_at
FROM unnest($2::int[], $3::int[]) AS p (step, item)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = $1 AND s.step = p.step AND s.item = p.item OFFSET 0
) AS s
<<execution_of_step>>
ORDER BY s.step, s.item;

-- name: states_of_steps
-- How each step of a run is shown, or with $2 each item of one, in one row: a run may have ten thousand. What no worker has
-- taken yet is queued.
SELECT array_agg(s.step ORDER BY s.step, s.item) AS steps, array_agg(s.item ORDER BY s.step, s.item) AS items,
       array_agg(CASE WHEN s.state = 'running' AND s.items IS NULL AND e.started_at IS NULL THEN 'queued' ELSE s.state END
                 ORDER BY s.step, s.item) AS states
FROM run_steps s
LEFT JOIN executions e ON s.state = 'running' AND e.execution_id = s.execution_id
WHERE s.run_id = $1 AND (s.item = -1 OR $2::int IS NOT NULL) AND ($2::int IS NULL OR s.step = $2);

-- name: steps_to_draw
-- What a picture of a run tells of its steps; history is not asked, so ten thousand are quickly read.
SELECT s.step, s.state, s.items, s.open_items, s.reason, s.flag, s.released_at, s.finished_at, e.started_at,
       CASE WHEN s.released_at IS NOT NULL THEN s.execution_id END AS execution_id
FROM run_steps s
LEFT JOIN executions e ON s.state = 'running' AND e.execution_id = s.execution_id
WHERE s.run_id = $1 AND s.item = -1 ORDER BY s.step;

-- name: grid_of_runs
-- The last runs of a workflow, newest first, each with the states of its steps in the order they were written.
SELECT r.run_id, r.state, r.version, r.fire_at, r.started_at, r.finished_at, s.states
FROM (
    SELECT * FROM runs WHERE job_id = $1 AND tenant_id = $2 ORDER BY run_id DESC LIMIT $3
) AS r
CROSS JOIN LATERAL (
    SELECT array_agg(state ORDER BY step) AS states FROM run_steps WHERE run_id = r.run_id AND item = -1
) AS s
ORDER BY r.run_id DESC;
