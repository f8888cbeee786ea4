-- name: open_hold
-- The hold of the cluster, if there is one.
SELECT hold_id, held_at, backup_at FROM holds WHERE ended_at IS NULL;

-- name: end_hold
-- Ends a hold. With `skip`, instants that came due before now are decided: nothing fires for them.
WITH ended AS (
    UPDATE holds SET ended_at = db_now(), ended_by = $2, gap = $3 WHERE hold_id = $1 AND ended_at IS NULL
    RETURNING hold_id
)
UPDATE shards s SET watermark = CASE WHEN $3::text = 'skip' THEN greatest(s.watermark, db_now()) ELSE s.watermark END
FROM ended RETURNING s.shard;

-- name: gap_executions
-- Executions of the backup that were due before the restore: they may have been executed since. The oldest first.
SELECT execution_id, tenant_id, state FROM executions
WHERE due_at < $1 AND (queued_at IS NULL OR queued_at < $1) AND cancel_at IS NULL ORDER BY execution_id LIMIT $2;

-- name: gap_summary
-- What the gap contains: the oldest undecided instant, executions that may have been executed since, active schedules.
SELECT (SELECT min(watermark) FROM shards) AS decided_upto,
       (SELECT count(*) FROM executions
        WHERE due_at < $1 AND (queued_at IS NULL OR queued_at < $1) AND cancel_at IS NULL) AS executions,
       (SELECT count(*) FROM jobs
        WHERE schedule_id IS NOT NULL AND deleted_at IS NULL AND paused_at IS NULL) AS schedules;
