-- part: overlap
-- Whether the job has a live execution, and whether it has one that has not started; backfills do not count.
j.overlap <> 'allow' AND (
               SELECT 1 FROM executions e
               WHERE e.job_id = j.job_id AND (e.state <> 'waiting' OR e.attempt > 0 OR e.trigger = 'fire')
                 AND e.backfill_id IS NULL LIMIT 1
           ) = 1 AS lives,
           j.overlap = 'queue_one' AND (
               SELECT 1 FROM executions e
               WHERE e.job_id = j.job_id AND e.backfill_id IS NULL
                 AND (e.state IN ('blocked', 'queued') OR e.state = 'waiting' AND e.attempt = 0 AND e.trigger = 'fire')
               LIMIT 1
           ) = 1 AS pending

-- part: record_skipped
-- Fires that are not executed go straight to history, with the reason.
skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                         fire_at, due_at, finished_at, reason)
    SELECT execution_id, job_id, tenant_id, version, priority, 0, 'skipped', 'fire', queue,
           fire_at, fire_at, $8, reason
    FROM wanted WHERE reason IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING reason
)

-- name: fire
-- Decides one instant of each due schedule for all its active jobs in a locked shard.
-- Arrays, one entry per schedule and shard: schedule, shard, instant, its id prefix, its trigger key, its rank, and for
-- missed instants how many newer ones were missed too (-1: not missed). The caller leaves out what the watermark passed.
-- The checks for live executions are scalar subqueries, so that each is one index probe, never a hash of the table.
-- A retry in its backoff counts as live, and so does a delayed fire; a delayed submission that has never started does
-- not, nor does a backfill.
-- No ON CONFLICT: the watermark rules repeats out, and the speculative insert it needs costs 5 µs per execution. If an id
-- exists nevertheless, the caller repeats the transaction with $9, which checks each id. Sorted by job, because that
-- index is the one with random inserts (6 µs).
WITH due AS (
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[],
                         $7::smallint[])
        AS d (schedule_id, shard, fire_at, prefix, trigger_key, rank, newer)
), candidates AS (
    SELECT execution_id(d.prefix, j.job_id, d.trigger_key) AS execution_id,
           j.job_id, j.tenant_id, j.version, j.shard, j.priority, j.queue, j.overlap, d.fire_at, j.start_by_s,
           claim_rank(d.rank, j.priority) AS rank, j.line_id, j.limit_id,
           d.newer >= 0 AND (j.misfire = 'skip' OR j.misfire = 'latest' AND d.newer > 0
                             OR d.newer >= j.misfire_most OR d.fire_at < $8::timestamptz - make_interval(secs => j.misfire_s))
               AS missed,
           <<overlap>>
    FROM due d
    JOIN jobs j ON j.schedule_id = d.schedule_id AND j.shard = d.shard
    WHERE j.deleted_at IS NULL AND j.paused_at IS NULL AND d.fire_at > j.active_from
      AND (j.start_at IS NULL OR d.fire_at >= j.start_at) AND (j.end_at IS NULL OR d.fire_at <= j.end_at)
), wanted AS (
    SELECT *, CASE WHEN missed THEN 'misfire'
                   WHEN lives AND overlap = 'skip' OR pending THEN 'overlap' END AS reason
    FROM candidates c
    WHERE CASE WHEN $9 THEN (SELECT 1 FROM executions e WHERE e.execution_id = c.execution_id) IS NULL ELSE true END
), queued AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, chained, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, start_by_at, line_id, limit_id)
    SELECT execution_id, job_id, tenant_id, version, shard, priority,
           overlap IN ('queue_one', 'queue_all', 'cancel_running'),
           CASE WHEN coalesce(lives, false) THEN 'blocked' ELSE 'queued' END, 'fire', queue,
           rank, fire_at, fire_at, CASE WHEN lives THEN NULL ELSE $8 END, fire_at + make_interval(secs => start_by_s),
           line_id, limit_id
    FROM wanted WHERE reason IS NULL
    ORDER BY job_id
    RETURNING line_id, rank, state
), <<record_skipped>>
SELECT NULL::text AS reason, true AS queued, count(*) AS n, line_id, min(rank) AS rank
FROM queued WHERE state = 'queued' GROUP BY line_id
UNION ALL
SELECT NULL, true, count(*), NULL, NULL FROM queued WHERE state = 'blocked' HAVING count(*) > 0
UNION ALL
SELECT reason, false, count(*), NULL, NULL FROM skipped GROUP BY reason;

-- part: planned_start
-- The start of a job's own, or one of those that its execution shares with others.
j.starts[coalesce(j.place, 1 + jitter_ms(j.execution_id, cardinality(j.starts) - 1, NULL))]

-- name: fire_delayed
-- Like `fire`, for schedules with jobs that start later than their instant: because of jitter, of a window (the leader has
-- planned its start, see planned_starts.sql; without a plan it starts at its instant), of a blackout, or because they need
-- other jobs. Jobs with needs are inserted as waiting; the caller releases them if the needs are met.
-- $9: milliseconds to the next fire. $10 to $16: for an instant of a schedule and some jobs (tenant, queue, job; null:
-- any) the end of the blackout, and the later fires inside it. Fires inside count as missed in advance: the misfire
-- policy decides now which of them wait for the end.
WITH due AS (
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::text[], $5::text[], $6::bigint[],
                         $7::smallint[], $9::bigint[])
        AS d (schedule_id, shard, fire_at, prefix, trigger_key, rank, newer, gap_ms)
), held AS (
    SELECT * FROM unnest($10::bigint[], $11::timestamptz[], $12::int[], $13::text[], $14::uuid[], $15::timestamptz[],
                         $16::text[])
        AS h (schedule_id, fire_at, tenant_id, queue, job_id, until, inside)
), active AS (
    SELECT execution_id(d.prefix, j.job_id, d.trigger_key) AS execution_id,
           j.job_id, j.tenant_id, j.version, j.shard, j.priority, j.queue, j.overlap, j.misfire, j.misfire_most,
           j.misfire_s, j.jitter_ms, j.start_by_s, j.line_id, j.limit_id, j.needs, d.gap_ms, p.starts,
           array_position(p.job_ids, j.job_id) AS place,
           claim_rank(d.rank, j.priority) AS rank, d.fire_at, h.until,
           greatest(h.until, CASE WHEN d.newer >= 0 THEN $8::timestamptz END) AS decided_at,
           greatest(d.newer, (
               SELECT count(*) FROM unnest(string_to_array(h.inside, ',')::bigint[]) AS inside (ms)
               WHERE j.end_at IS NULL OR ms <= extract(epoch FROM j.end_at) * 1000
           )) AS newer
    FROM due d
    JOIN jobs j ON j.schedule_id = d.schedule_id AND j.shard = d.shard
    LEFT JOIN planned_starts p ON p.schedule_id = j.schedule_id AND p.fire_at = d.fire_at AND p.queue = j.queue
        AND p.flexible = j.flexible
    LEFT JOIN LATERAL (
        SELECT until, inside FROM held
        WHERE held.schedule_id = d.schedule_id AND held.fire_at = d.fire_at AND held.tenant_id = j.tenant_id
          AND (held.queue IS NULL OR held.queue = j.queue) AND (held.job_id IS NULL OR held.job_id = j.job_id)
        ORDER BY held.job_id IS NULL, held.queue IS NULL LIMIT 1
    ) AS h ON true
    WHERE j.deleted_at IS NULL AND j.paused_at IS NULL AND d.fire_at > j.active_from
      AND (j.start_at IS NULL OR d.fire_at >= j.start_at) AND (j.end_at IS NULL OR d.fire_at <= j.end_at)
), candidates AS (
    SELECT j.*, j.decided_at IS NOT NULL
                AND (j.misfire = 'skip' OR j.misfire = 'latest' AND j.newer > 0 OR j.newer >= j.misfire_most
                     OR j.fire_at < j.decided_at - make_interval(secs => j.misfire_s)) AS missed,
           CASE WHEN j.until > $8 THEN j.until
                WHEN j.starts IS NOT NULL THEN greatest(j.fire_at, <<planned_start>>)
                ELSE j.fire_at + jitter_ms(j.execution_id, j.jitter_ms, j.gap_ms) * interval '1 ms'
           END AS due_at,
           <<overlap>>
    FROM active j
), wanted AS (
    SELECT *, CASE WHEN missed AND until IS NOT NULL THEN 'blackout'
                   WHEN missed THEN 'misfire'
                   WHEN lives AND overlap = 'skip' OR pending THEN 'overlap' END AS reason
    FROM candidates
), queued AS (
    INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, chained, state, trigger, queue,
                            rank, fire_at, due_at, queued_at, start_by_at, line_id, limit_id, needs_by_at)
    SELECT execution_id, job_id, tenant_id, version, shard, priority,
           overlap IN ('queue_one', 'queue_all', 'cancel_running'),
           CASE WHEN lives THEN 'blocked' WHEN needs OR due_at > $8 THEN 'waiting' ELSE 'queued' END, 'fire', queue,
           rank, fire_at, CASE WHEN needs AND lives IS NOT TRUE THEN 'infinity' ELSE due_at END,
           CASE WHEN lives OR needs OR due_at > $8 THEN NULL ELSE $8 END,
           fire_at + make_interval(secs => start_by_s), line_id, limit_id,
           CASE WHEN needs AND lives IS NOT TRUE THEN coalesce(
               fire_at + make_interval(secs => (SELECT min(n.wait_s) FROM job_needs n WHERE n.child_id = wanted.job_id)),
               'infinity') END
    FROM wanted WHERE reason IS NULL
    ON CONFLICT (execution_id) DO NOTHING
    RETURNING state, due_at, line_id, rank, job_id, needs_by_at
), <<record_skipped>>
SELECT NULL::text AS reason, true AS queued, count(*) AS n, NULL::timestamptz AS due_at, NULL::uuid[] AS needing,
       line_id, min(rank) AS rank
FROM queued WHERE state = 'queued' GROUP BY line_id
UNION ALL
SELECT NULL, true, count(*), min(due_at) FILTER (WHERE state = 'waiting' AND needs_by_at IS NULL),
       array_agg(job_id) FILTER (WHERE needs_by_at IS NOT NULL), NULL, NULL
FROM queued WHERE state <> 'queued' GROUP BY state
UNION ALL
SELECT reason, false, count(*), NULL, NULL, NULL, NULL FROM skipped GROUP BY reason;

-- name: skip_range
-- Records missed instants that are too many to list as one skipped row per job: from $2 to $3, $7 of them. Jobs active
-- for only a part of that time are counted one by one, see partly_active.
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                     fire_at, due_at, finished_at, reason, fires)
SELECT execution_id($4, j.job_id, $5), j.job_id, j.tenant_id, j.version, j.priority, 0, 'skipped', 'fire', j.queue,
       $3, $3, $8, 'misfire', $7
FROM jobs j
WHERE j.schedule_id = $1 AND j.shard = ANY ($6::smallint[]) AND j.deleted_at IS NULL AND j.paused_at IS NULL
  AND j.active_from < $2 AND (j.start_at IS NULL OR j.start_at <= $2) AND (j.end_at IS NULL OR j.end_at >= $3)
ON CONFLICT DO NOTHING;

-- name: partly_active
-- Jobs on a schedule that were active for a part of the instants from $2 to $3.
SELECT j.job_id, j.tenant_id, j.version, j.active_from, j.start_at, j.end_at
FROM jobs j
WHERE j.schedule_id = $1 AND j.shard = ANY ($4::smallint[]) AND j.deleted_at IS NULL AND j.paused_at IS NULL
  AND NOT (j.active_from < $2 AND (j.start_at IS NULL OR j.start_at <= $2) AND (j.end_at IS NULL OR j.end_at >= $3))
  AND j.active_from < $3 AND (j.start_at IS NULL OR j.start_at <= $3) AND (j.end_at IS NULL OR j.end_at >= $2);

-- name: abandoned
-- The schedules without an active job in that shard. The caller has locked the shards.
SELECT d.schedule_id, d.shard FROM unnest($1::bigint[], $2::smallint[]) AS d (schedule_id, shard)
WHERE NOT EXISTS (
    SELECT FROM jobs j
    WHERE j.schedule_id = d.schedule_id AND j.shard = d.shard AND j.deleted_at IS NULL AND j.paused_at IS NULL
      AND (j.end_at IS NULL OR j.end_at > $3)
);

-- name: promote_waiting
-- Queues the due waiting executions of these shards. Needs no fence: state and due time are checked here. First attempts
-- of fires are left to the blackout gate (see blackouts.sql) if their tenant has blackouts.
WITH due AS (
    SELECT e.execution_id, e.state
    FROM unnest($1::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT execution_id, state FROM executions
        WHERE state = 'waiting' AND shard = mine.shard AND due_at <= (SELECT db_now())
          AND (trigger <> 'fire' OR attempt > 0
               OR tenant_id <> ALL (ARRAY(
                   SELECT DISTINCT tenant_id FROM blackouts
                   WHERE deleted_at IS NULL AND (end_at IS NULL OR end_at > (SELECT db_now()))
               )))
        ORDER BY due_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS e
), queued AS (
    UPDATE executions e SET state = 'queued', queued_at = db_now()
    FROM due WHERE e.execution_id = ANY (ARRAY[due.execution_id]) AND e.state = due.state
    RETURNING e.line_id, e.rank
)
SELECT count(*) AS n, line_id, min(rank) AS rank FROM queued GROUP BY line_id;

-- name: next_waiting
-- When the next waiting execution of these shards is due.
SELECT min(first.due_at)
FROM unnest($1::smallint[]) AS mine (shard)
CROSS JOIN LATERAL (
    SELECT due_at FROM executions WHERE state = 'waiting' AND shard = mine.shard ORDER BY due_at LIMIT 1
) AS first;

-- name: waiting_ahead
-- The next waiting executions of each shard ($2 of each).
SELECT mine.shard, ahead.due_at
FROM unnest($1::smallint[]) AS mine (shard)
CROSS JOIN LATERAL (
    SELECT due_at FROM executions
    WHERE state = 'waiting' AND shard = mine.shard AND due_at < 'infinity' ORDER BY due_at LIMIT $2
) AS ahead;
