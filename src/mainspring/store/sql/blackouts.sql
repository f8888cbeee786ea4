-- name: open_blackouts
-- Blackouts of all tenants ($1 null) or of one, for ticks. Includes windows that ended in the last 7 days: fires that were
-- due in them may still be undecided.
SELECT b.tenant_id, b.queue, b.job_id, b.start_at, b.end_at, b.schedule_key, b.lasts_ms FROM blackouts b
WHERE b.deleted_at IS NULL AND (b.end_at IS NULL OR b.end_at > db_now() - interval '7 days')
  AND ($1::int IS NULL OR b.tenant_id = $1);

-- name: list_blackouts
-- A tenant's blackouts, newest first; with $4 those before that one, which may be deleted.
SELECT b.*, j.name AS job_name FROM blackouts b LEFT JOIN jobs j USING (job_id)
WHERE b.tenant_id = $1 AND b.deleted_at IS NULL AND ($3::uuid IS NULL OR b.blackout_id = $3)
  AND ($4::uuid IS NULL OR (b.created_at, b.blackout_id) < (
      SELECT l.created_at, l.blackout_id FROM blackouts l WHERE l.blackout_id = $4 AND l.tenant_id = $1))
ORDER BY b.created_at DESC, b.blackout_id DESC LIMIT $2;

-- name: active_blackouts
-- Blackouts of a tenant that may hold fires now: single windows that have begun and not ended, and recurring ones.
SELECT b.*, j.name AS job_name FROM blackouts b LEFT JOIN jobs j USING (job_id)
WHERE b.tenant_id = $1 AND b.deleted_at IS NULL AND (b.end_at IS NULL OR b.end_at > db_now())
  AND (b.start_at IS NULL OR b.start_at <= db_now())
ORDER BY b.created_at DESC, b.blackout_id DESC LIMIT $2;

-- name: insert_blackout
-- Adds a blackout. The caller has locked all shard rows (bump_blackouts), so the next tick reads it.
INSERT INTO blackouts (blackout_id, tenant_id, queue, job_id, start_at, end_at, schedule, schedule_key, lasts_ms,
                       reason, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: delete_blackout
-- Deletes a blackout and makes fires that wait for its end due now; the gate stops them again if another one applies.
WITH gone AS (
    UPDATE blackouts SET deleted_at = db_now(), deleted_by = $3
    WHERE blackout_id = $1 AND tenant_id = $2 AND deleted_at IS NULL
    RETURNING blackout_id, queue, job_id, deleted_at
), free AS (
    UPDATE executions e SET due_at = gone.deleted_at
    FROM gone, jobs j
    WHERE e.tenant_id = $2 AND e.state = 'waiting' AND e.trigger = 'fire' AND e.attempt = 0
      AND (gone.queue IS NULL OR e.queue = gone.queue) AND (gone.job_id IS NULL OR e.job_id = gone.job_id)
      AND j.job_id = e.job_id AND e.fire_at <= gone.deleted_at AND e.due_at < 'infinity'
      AND e.due_at > gone.deleted_at AND e.due_at > e.fire_at + coalesce(j.jitter_ms, 0) * interval '1 ms'
      AND j.flexible IS NULL -- their starts are planned, around blackouts
    RETURNING e.due_at
)
SELECT blackout_id, (SELECT min(due_at) FROM free) AS due_at FROM gone;

-- name: lock_gated
-- Locks due fires of tenants with blackouts: `promote_waiting` leaves them to the gate.
SELECT e.execution_id, e.tenant_id, e.queue, e.job_id, e.fire_at, j.misfire, j.misfire_s, db_now() AS now
FROM executions e JOIN jobs j USING (job_id)
WHERE e.state = 'waiting' AND e.shard = ANY ($1::smallint[]) AND e.due_at <= (SELECT db_now())
  AND e.trigger = 'fire' AND e.attempt = 0
  AND e.tenant_id = ANY (ARRAY(
      SELECT DISTINCT tenant_id FROM blackouts
      WHERE deleted_at IS NULL AND (end_at IS NULL OR end_at > (SELECT db_now()))
  ))
ORDER BY e.execution_id LIMIT $2 FOR UPDATE OF e SKIP LOCKED;

-- name: apply_gate
-- Applies the gate's verdicts to fires: queue, hold until the end of a blackout, or skip.
WITH verdict AS (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::boolean[]) AS v (execution_id, until, skipped)
), gone AS (
    DELETE FROM executions e USING verdict v
    WHERE e.execution_id = ANY (ARRAY[v.execution_id]) AND e.state = 'waiting' AND v.skipped
    RETURNING e.*
), skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, finished_at, reason)
    SELECT execution_id, job_id, tenant_id, version, priority, attempt, 'skipped', trigger, queue, fire_at,
           due_at, db_now(), 'blackout'
    FROM gone
), held AS (
    UPDATE executions e SET due_at = v.until FROM verdict v
    WHERE e.execution_id = ANY (ARRAY[v.execution_id]) AND e.state = 'waiting' AND NOT v.skipped AND v.until IS NOT NULL
), queued AS (
    UPDATE executions e SET state = 'queued', queued_at = db_now() FROM verdict v
    WHERE e.execution_id = ANY (ARRAY[v.execution_id]) AND e.state = 'waiting' AND NOT v.skipped AND v.until IS NULL
    RETURNING e.line_id, e.rank
)
SELECT line_id, min(rank) AS rank, NULL::uuid AS chained FROM queued GROUP BY line_id
UNION ALL
SELECT NULL, NULL, job_id FROM gone WHERE chained;
