-- Executions of one job that wait for one another: overlap policies queue_one, queue_all and cancel_running. Firing and
-- releasing both lock the job's row before they check whether an execution of the job is live. So the second of two
-- transactions sees the decision of the first, and no execution stays blocked behind none. Lock order: jobs by key, then
-- executions by key, then needs by key. Jobs are locked FOR NO KEY UPDATE: their ids never change, and the foreign keys of
-- other tables, whose checks lock jobs in any order, need not wait.

-- name: lock_chained
-- Second statement of a firing transaction with jobs whose executions wait for one another: locks these jobs, so that
-- the check for live executions sees every settlement that held a job before.
SELECT j.job_id FROM jobs j
WHERE j.schedule_id = ANY ($1::bigint[]) AND j.shard = ANY ($2::smallint[])
  AND j.deleted_at IS NULL AND j.paused_at IS NULL AND j.overlap IN ('queue_one', 'queue_all', 'cancel_running')
ORDER BY j.job_id FOR NO KEY UPDATE OF j;

-- name: lock_replaceable
-- Third statement, for the policy cancel_running: locks the executions it may end, in key order as settling does.
SELECT e.execution_id FROM executions e JOIN jobs j USING (job_id)
WHERE j.schedule_id = ANY ($1::bigint[]) AND j.shard = ANY ($2::smallint[]) AND e.backfill_id IS NULL
  AND j.deleted_at IS NULL AND j.paused_at IS NULL AND j.overlap = 'cancel_running'
ORDER BY e.execution_id FOR UPDATE OF e;

-- name: release_blocked
-- Queues the oldest blocked execution of each job without another live one. It waits instead if its jitter or a
-- blackout delays it, or if the job needs others. The caller has locked the job rows.
WITH free AS (
    SELECT w.job_id, (
        SELECT e.execution_id FROM executions e WHERE e.job_id = w.job_id AND e.state = 'blocked' AND e.chained
        ORDER BY e.execution_id LIMIT 1
    ) AS execution_id
    FROM unnest($1::uuid[]) AS w (job_id)
    WHERE (
        SELECT 1 FROM executions e
        WHERE e.job_id = w.job_id AND (e.state IN ('queued', 'running')
                                       OR e.state = 'waiting' AND (e.attempt > 0 OR e.trigger = 'fire'))
          AND e.backfill_id IS NULL
        LIMIT 1
    ) IS NULL
), freed AS (
    UPDATE executions e SET state = CASE WHEN j.needs OR e.due_at > now.at THEN 'waiting' ELSE 'queued' END,
        queued_at = CASE WHEN j.needs OR e.due_at > now.at THEN NULL ELSE now.at END,
        due_at = CASE WHEN j.needs THEN 'infinity' ELSE e.due_at END,
        needs_by_at = CASE WHEN j.needs THEN coalesce(
            now.at + make_interval(secs => (SELECT min(n.wait_s) FROM job_needs n WHERE n.child_id = j.job_id)),
            'infinity') END
    FROM free JOIN jobs j USING (job_id), (SELECT db_now()) AS now (at)
    WHERE e.execution_id = ANY (ARRAY[free.execution_id]) AND e.state = 'blocked' AND e.chained
    RETURNING e.line_id, e.rank, e.state, e.due_at
)
SELECT line_id, rank, state, due_at FROM freed WHERE due_at < 'infinity';

-- name: lock_jobs
-- Locks job rows in order, so that later statements see all decisions about them.
SELECT job_id, needs FROM jobs WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR NO KEY UPDATE;

-- name: blocked_jobs
-- Jobs with blocked executions. The sweep releases those whose release was lost with a server.
SELECT DISTINCT job_id FROM executions WHERE state = 'blocked' AND chained LIMIT $1;

-- name: replace_running
-- The policy cancel_running, after `fire` in the same transaction: the newest blocked execution of a job replaces the
-- others. Pending ones are cancelled at once; running ones get a cancel request, and their end releases the new one.
WITH newest AS (
    SELECT j.job_id, (
        SELECT e.execution_id FROM executions e WHERE e.job_id = j.job_id AND e.state = 'blocked' AND e.chained
        ORDER BY e.execution_id DESC LIMIT 1
    ) AS execution_id
    FROM jobs j
    WHERE j.schedule_id = ANY ($1::bigint[]) AND j.shard = ANY ($2::smallint[])
      AND j.deleted_at IS NULL AND j.paused_at IS NULL AND j.overlap = 'cancel_running'
), asked AS (
    UPDATE executions e SET cancel_at = coalesce(cancel_at, $3), cancel_reason = coalesce(cancel_reason, 'overlap')
    FROM newest n
    WHERE e.job_id = n.job_id AND e.execution_id <> n.execution_id AND e.state = 'running' AND e.backfill_id IS NULL
    RETURNING e.session_id
), gone AS (
    DELETE FROM executions e USING newest n
    WHERE e.job_id = n.job_id AND e.execution_id <> n.execution_id AND e.backfill_id IS NULL
      AND (e.state IN ('blocked', 'queued') OR e.state = 'waiting' AND (e.attempt > 0 OR e.trigger = 'fire'))
    RETURNING e.*
), cancelled AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, queued_at, started_at, finished_at, reason, params, created_by)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'cancelled', trigger, queue, fire_at,
           due_at, queued_at, started_at, $3, 'overlap', params, created_by
    FROM gone
)
SELECT job_id, NULL::uuid AS session_id FROM newest WHERE execution_id IS NOT NULL
UNION ALL
SELECT NULL, session_id FROM asked;
