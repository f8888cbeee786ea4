-- Missed fires of one job, decided at resume. The caller has locked the shard's row, then the job's.

-- name: lock_executions_of_job
-- Locks what the cancel_running policy may cancel, in key order, as settling does.
SELECT execution_id FROM executions WHERE job_id = $1 AND tenant_id = $2 AND backfill_id IS NULL
ORDER BY execution_id FOR UPDATE;

-- name: liveness_of_job
-- Whether a job has a live and a pending execution; those of backfills do not count.
SELECT coalesce(bool_or(state <> 'waiting' OR attempt > 0 OR trigger = 'fire'), false) AS lives,
       coalesce(bool_or(state IN ('blocked', 'queued') OR state = 'waiting' AND attempt = 0 AND trigger = 'fire'), false)
           AS pending
FROM executions WHERE job_id = $1 AND tenant_id = $2 AND backfill_id IS NULL;

-- name: insert_missed
-- Inserts executions of missed instants: blocked behind one another if chained ($6), waiting if the job has needs, else
-- queued.
WITH fresh AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, chained, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, start_by_at, line_id, limit_id, needs_by_at)
    SELECT w.execution_id, j.job_id, j.tenant_id, j.version, j.shard, j.priority, $6,
           CASE WHEN $6 THEN 'blocked' WHEN j.needs THEN 'waiting' ELSE 'queued' END, 'fire', j.queue,
           claim_rank(w.rank, j.priority), w.fire_at, CASE WHEN j.needs AND NOT $6 THEN 'infinity' ELSE w.fire_at END,
           CASE WHEN NOT $6 AND NOT j.needs THEN db_now() END, w.fire_at + make_interval(secs => j.start_by_s), j.line_id,
           j.limit_id, CASE WHEN j.needs AND NOT $6 THEN coalesce(
               db_now() + make_interval(secs => (SELECT min(n.wait_s) FROM job_needs n WHERE n.child_id = j.job_id)),
               'infinity') END
    FROM unnest($3::uuid[], $4::timestamptz[], $5::bigint[]) AS w (execution_id, fire_at, rank)
    JOIN jobs j ON j.job_id = $1
    WHERE j.tenant_id = $2 AND j.deleted_at IS NULL
    ON CONFLICT (execution_id) DO NOTHING
    RETURNING line_id, rank, state
)
SELECT line_id, min(rank) AS rank FROM fresh WHERE state = 'queued' GROUP BY line_id;

-- name: skip_missed
-- Records missed instants that are skipped, one row each.
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                     fire_at, due_at, finished_at, reason)
SELECT w.execution_id, j.job_id, j.tenant_id, j.version, j.priority, 0, 'skipped', 'fire', j.queue,
       w.fire_at, w.fire_at, db_now(), w.reason
FROM unnest($3::uuid[], $4::timestamptz[], $5::text[]) AS w (execution_id, fire_at, reason)
JOIN jobs j ON j.job_id = $1
WHERE j.tenant_id = $2
ON CONFLICT DO NOTHING;

-- name: replace_running_of
-- The cancel_running policy for one job: its newest blocked execution replaces the others.
WITH newest AS (
    SELECT execution_id FROM executions
    WHERE job_id = $1 AND tenant_id = $2 AND state = 'blocked' AND chained ORDER BY rank DESC LIMIT 1
), asked AS (
    UPDATE executions e SET cancel_at = coalesce(cancel_at, db_now()), cancel_reason = coalesce(cancel_reason, 'overlap')
    FROM newest n
    WHERE e.job_id = $1 AND e.tenant_id = $2 AND e.execution_id <> n.execution_id AND e.state = 'running'
      AND e.backfill_id IS NULL
    RETURNING e.session_id
), gone AS (
    DELETE FROM executions e USING newest n
    WHERE e.job_id = $1 AND e.tenant_id = $2 AND e.execution_id <> n.execution_id AND e.backfill_id IS NULL
      AND (e.state IN ('blocked', 'queued') OR e.state = 'waiting' AND (e.attempt > 0 OR e.trigger = 'fire'))
    RETURNING e.*
), cancelled AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, queued_at, started_at, finished_at, reason, params, created_by)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
           due_at, queued_at, started_at, db_now(), 'overlap', params, created_by
    FROM gone
)
SELECT DISTINCT session_id FROM asked;
