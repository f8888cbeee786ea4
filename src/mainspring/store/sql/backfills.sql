-- Lock order: the backfill, then its job, then executions by key.

-- name: insert_backfill
-- Inserts a backfill of the job's current schedule.
INSERT INTO backfills (backfill_id, tenant_id, job_id, schedule_id, from_at, to_at, reprocess, newest_first,
                       concurrency, priority, params, state, instants, created_by)
SELECT $1, $2, $3, schedule_id, $4, $5, $6, $7, $8, $9, $10, 'running', $11, $12
FROM jobs WHERE job_id = $3 AND tenant_id = $2 AND schedule_id = $13 AND deleted_at IS NULL
RETURNING job_id;

-- name: backfill_by_id
-- One backfill.
SELECT b.*, j.name AS job_name FROM backfills b JOIN jobs j USING (job_id)
WHERE b.backfill_id = $1 AND b.tenant_id = $2;

-- name: list_backfills
-- A page of backfills, newest first, before an id; optionally of one job.
SELECT b.*, j.name AS job_name FROM backfills b JOIN jobs j USING (job_id)
WHERE b.tenant_id = $1 AND b.backfill_id < $2 AND ($4::uuid IS NULL OR b.job_id = $4)
ORDER BY b.backfill_id DESC LIMIT $3;

-- name: backfill_progress
-- Number of executions of a backfill in each state. The instants of its range and its creation time bound the scan.
SELECT e.state, count(*) AS n FROM (
    SELECT state FROM executions WHERE backfill_id = $1 AND tenant_id = $2
    UNION ALL
    SELECT h.state FROM backfills b JOIN history h ON h.job_id = b.job_id
    WHERE b.backfill_id = $1 AND b.tenant_id = $2 AND h.execution_id BETWEEN $3 AND $4 AND h.backfill_id = $1
      AND h.finished_at >= b.created_at
) AS e GROUP BY e.state;

-- name: open_backfills
-- Running backfills, oldest first.
SELECT backfill_id FROM backfills WHERE state = 'running' ORDER BY backfill_id LIMIT $1;

-- name: lock_backfill
-- First statement of a feeding transaction: locks a running backfill.
SELECT b.*, coalesce(s.content, s.key) AS schedule_key, j.deleted_at IS NOT NULL AS job_deleted, j.start_at, j.end_at
FROM backfills b JOIN jobs j USING (job_id) JOIN schedules s ON s.schedule_id = b.schedule_id
WHERE b.backfill_id = $1 AND b.state = 'running' FOR UPDATE OF b;

-- name: backfill_live
-- Number of live executions of a backfill.
SELECT count(*) FROM executions WHERE backfill_id = $1;

-- name: instant_outcomes
-- The state of the latest execution of each instant in a range of ids; a live one counts as the latest.
SELECT DISTINCT ON (fire_at) fire_at, state FROM (
    SELECT fire_at, state, NULL::timestamptz AS finished_at FROM executions
    WHERE job_id = $1 AND tenant_id = $2 AND execution_id BETWEEN $3 AND $4 AND trigger IN ('fire', 'backfill', 'replay')
    UNION ALL
    SELECT fire_at, state, finished_at FROM history
    WHERE job_id = $1 AND tenant_id = $2 AND execution_id BETWEEN $3 AND $4 AND trigger IN ('fire', 'backfill', 'replay')
      AND finished_at >= $5
) AS e ORDER BY fire_at, finished_at DESC NULLS FIRST;

-- name: insert_backfill_executions
-- Inserts executions of a backfill for their nominal instants, due now and ranked behind its live ones. An instant that
-- already has an execution is left out.
WITH fresh AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, params, created_by, backfill_id, line_id, limit_id)
    SELECT w.execution_id, j.job_id, j.tenant_id, j.version, j.shard, b.priority, 'queued', 'backfill', j.queue,
           line.ends_at + w.place, w.fire_at, clock.at, clock.at, b.params, b.created_by, b.backfill_id, j.line_id,
           j.limit_id
    FROM backfills b JOIN jobs j USING (job_id)
    CROSS JOIN unnest($2::uuid[], $3::timestamptz[]) WITH ORDINALITY AS w (execution_id, fire_at, place)
    CROSS JOIN (SELECT db_now()) AS clock (at)
    CROSS JOIN LATERAL (
        SELECT greatest(claim_rank(floor(extract(epoch FROM clock.at) * 1000)::bigint, b.priority), max(e.rank)) AS ends_at
        FROM executions e WHERE e.backfill_id = $1
    ) AS line
    WHERE b.backfill_id = $1 AND b.state = 'running' AND j.deleted_at IS NULL
      AND NOT EXISTS (SELECT FROM history h WHERE h.execution_id = w.execution_id AND h.finished_at >= b.created_at)
    ON CONFLICT (execution_id) DO NOTHING
    RETURNING line_id, rank
)
SELECT line_id, min(rank) AS rank FROM fresh GROUP BY line_id;

-- name: move_backfill
-- Last statement of a feeding transaction: moves the cursor past the decided instants.
UPDATE backfills SET cursor_at = $3, made = made + $4, left_out = left_out + $5
WHERE backfill_id = $1 AND state = 'running' AND cursor_at IS NOT DISTINCT FROM $2
RETURNING backfill_id;

-- name: end_backfill
-- Ends a backfill without live executions: nothing is left to create, or its job was deleted.
UPDATE backfills SET state = $2, ended_at = db_now()
WHERE backfill_id = $1 AND state = 'running' AND NOT EXISTS (SELECT FROM executions WHERE backfill_id = $1)
RETURNING backfill_id;

-- name: set_backfill
-- Pauses, resumes or cancels a backfill that is in one of the states $4.
UPDATE backfills SET state = $3, ended_at = CASE WHEN $3 = 'cancelled' THEN db_now() END
WHERE backfill_id = $1 AND tenant_id = $2 AND state = ANY ($4::text[])
RETURNING job_id;

-- name: lock_backfill_executions
-- Locks the live executions of a backfill in key order, before they are cancelled.
SELECT execution_id FROM executions WHERE backfill_id = $1 AND tenant_id = $2 ORDER BY execution_id FOR UPDATE;

-- name: cancel_backfill_pending
-- Cancels executions of a backfill that have not started.
WITH gone AS (
    DELETE FROM executions
    WHERE backfill_id = $1 AND tenant_id = $2 AND state IN ('waiting', 'blocked', 'queued')
    RETURNING *
)
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, queued_at, started_at, finished_at, reason, params, created_by, backfill_id)
SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
       due_at, queued_at, started_at, db_now(), $3, params, created_by, backfill_id
FROM gone;

-- name: cancel_backfill_running
-- Requests the cancellation of running executions of a backfill.
UPDATE executions SET cancel_at = coalesce(cancel_at, db_now()), cancel_reason = coalesce(cancel_reason, $3)
WHERE backfill_id = $1 AND tenant_id = $2 AND state = 'running'
RETURNING session_id;

-- name: forget_backfills
-- Deletes up to $2 backfills that ended $1 seconds ago.
DELETE FROM backfills WHERE backfill_id IN (
    SELECT backfill_id FROM backfills WHERE ended_at < (SELECT db_now()) - make_interval(secs => $1)
    ORDER BY ended_at LIMIT $2
)
RETURNING backfill_id;
