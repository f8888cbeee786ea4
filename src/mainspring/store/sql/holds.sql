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

-- name: begin_hold
-- Begins a hold, and fences off processes of before. The gap begins at $1.
SELECT hold_firing($1);

-- name: recovered_upto
-- When the last transaction was committed that a recovery has replayed; null if this server has not recovered since its start.
SELECT pg_last_xact_replay_timestamp();

-- name: gap_executions
-- Executions of the backup that were due before the restore, or waited for other jobs: they may have been executed since.
-- The oldest first.
SELECT execution_id, tenant_id, state FROM executions
WHERE (due_at < $1 OR due_at = 'infinity' AND fire_at < $1) AND cancel_at IS NULL
ORDER BY execution_id LIMIT $2;

-- name: gap_summary
-- What the gap contains: the oldest undecided instant, executions that may have been executed since, submissions that are
-- still to be moved, active schedules, and what starts executions from a place of its own.
SELECT (SELECT min(watermark) FROM shards) AS decided_upto,
       (SELECT count(*) FROM executions
        WHERE (due_at < $1 OR due_at = 'infinity' AND fire_at < $1) AND cancel_at IS NULL)
       + (SELECT count(*) FROM submissions WHERE due_at < $1) AS executions,
       (SELECT count(*) FROM jobs
        WHERE schedule_id IS NOT NULL AND deleted_at IS NULL AND paused_at IS NULL) AS schedules,
       (SELECT count(*) FROM backfills WHERE state = 'running' AND created_at < $1) AS backfills,
       (SELECT count(*) FROM triggers
        WHERE kind IN ('files', 'topic') AND paused_at IS NULL AND created_at < $1) AS triggers;

-- name: gap_backfills
-- Running backfills of the backup: they may have created further executions since.
SELECT backfill_id, tenant_id FROM backfills WHERE state = 'running' AND created_at < $1 ORDER BY backfill_id;

-- name: gap_triggers
-- Active triggers of files and topics of the backup: what they have read since is not recorded.
SELECT name, tenant_id FROM triggers
WHERE kind IN ('files', 'topic') AND paused_at IS NULL AND created_at < $1 ORDER BY trigger_id;
