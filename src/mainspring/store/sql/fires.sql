-- name: fire
-- Decides one instant of each due schedule for all its active jobs in the locked shards.
-- Arrays: schedule, instant, its id prefix, its trigger key, its rank, and for missed ones how many newer ones were
-- missed too (-1: not missed).
-- The looks for live executions are scalar subqueries, so that each is one index probe, never a hash of the table.
-- A retry that waits for its backoff lives; a delayed submission that has never started does not.
WITH due AS (
    SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::bigint[], $6::smallint[])
        AS d (schedule_id, fire_at, prefix, trigger_key, rank, newer)
), candidates AS (
    SELECT execution_id(d.prefix, j.job_id, d.trigger_key) AS execution_id,
           j.job_id, j.tenant_id, j.version, j.shard, j.priority, j.queue, j.overlap, d.fire_at,
           d.rank - j.priority * 900000 AS rank, j.line_id, j.limit_id,
           d.newer >= 0 AND (j.misfire = 'skip' OR j.misfire = 'latest' AND d.newer > 0
                             OR d.newer >= j.misfire_most OR d.fire_at < $8::timestamptz - make_interval(secs => j.misfire_s))
               AS missed,
           j.overlap <> 'allow' AND (
               SELECT 1 FROM executions e
               WHERE e.job_id = j.job_id AND (e.state <> 'waiting' OR e.attempt > 0) LIMIT 1
           ) = 1 AS lives,
           j.overlap = 'queue_one' AND (
               SELECT 1 FROM executions e WHERE e.job_id = j.job_id AND e.state IN ('blocked', 'queued') LIMIT 1
           ) = 1 AS pending
    FROM due d
    JOIN jobs j ON j.schedule_id = d.schedule_id
    JOIN shards s ON s.shard = j.shard
    WHERE j.shard = ANY ($7::smallint[]) AND j.deleted_at IS NULL AND j.paused_at IS NULL
      AND d.fire_at > s.watermark AND d.fire_at > j.active_from
      AND (j.start_at IS NULL OR d.fire_at >= j.start_at) AND (j.end_at IS NULL OR d.fire_at <= j.end_at)
), wanted AS (
    SELECT *, CASE WHEN missed THEN 'misfire'
                   WHEN lives AND overlap = 'skip' OR pending THEN 'overlap' END AS reason
    FROM candidates
), queued AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, chained, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, line_id, limit_id)
    SELECT execution_id, job_id, tenant_id, version, shard, priority,
           overlap IN ('queue_one', 'queue_all', 'cancel_running'),
           CASE WHEN coalesce(lives, false) THEN 'blocked' ELSE 'queued' END, 'fire', queue,
           rank, fire_at, fire_at, CASE WHEN lives THEN NULL ELSE $8 END, line_id, limit_id
    FROM wanted WHERE reason IS NULL
    ON CONFLICT (execution_id) DO NOTHING
    RETURNING line_id, rank, queue, state
), skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                         fire_at, due_at, finished_at, reason)
    SELECT execution_id, job_id, tenant_id, version, priority, 0, 'skipped', 'fire', queue,
           fire_at, fire_at, $8, reason
    FROM wanted WHERE reason IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING reason
)
SELECT min(queue) AS word, true AS queued, count(*) AS n,
       pg_notify('mainspring_queued', line_id || ' ' || min(rank))
FROM queued WHERE state = 'queued' GROUP BY line_id
UNION ALL
SELECT 'blocked', true, count(*), NULL FROM queued WHERE state = 'blocked' HAVING count(*) > 0
UNION ALL
SELECT reason, false, count(*), NULL FROM skipped GROUP BY reason;

-- name: skip_range
-- Records missed instants too many to list as one skipped row per job; $2 is the last of them, $6 their number.
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                     fire_at, due_at, finished_at, reason, fires)
SELECT execution_id($3, j.job_id, $4), j.job_id, j.tenant_id, j.version, j.priority, 0, 'skipped', 'fire', j.queue,
       $2, $2, $7, 'misfire', $6
FROM jobs j JOIN shards s ON s.shard = j.shard
WHERE j.schedule_id = $1 AND j.shard = ANY ($5::smallint[]) AND j.deleted_at IS NULL AND j.paused_at IS NULL
  AND $2 > s.watermark AND $2 > j.active_from
  AND (j.start_at IS NULL OR $2 >= j.start_at) AND (j.end_at IS NULL OR $2 <= j.end_at)
ON CONFLICT DO NOTHING;

-- name: promote_waiting
-- Queues the waiting executions of these shards that are due. Needs no fence: state and due time are checked here.
WITH due AS (
    SELECT e.execution_id, e.state
    FROM unnest($1::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT execution_id, state FROM executions
        WHERE state = 'waiting' AND shard = mine.shard AND due_at <= (SELECT db_now())
        ORDER BY due_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS e
), queued AS (
    UPDATE executions e SET state = 'queued', queued_at = db_now()
    FROM due WHERE e.execution_id = due.execution_id AND e.state = due.state
    RETURNING e.line_id, e.rank
)
SELECT count(*) AS n, pg_notify('mainspring_queued', line_id || ' ' || min(rank)) FROM queued GROUP BY line_id;

-- name: next_waiting
-- When the next waiting execution of these shards is due.
SELECT min(first.due_at)
FROM unnest($1::smallint[]) AS mine (shard)
CROSS JOIN LATERAL (
    SELECT due_at FROM executions WHERE state = 'waiting' AND shard = mine.shard ORDER BY due_at LIMIT 1
) AS first;
