-- name: intern_schedule
-- The id of this schedule, inserted if it is new.
WITH fresh AS (
    INSERT INTO schedules (key, content) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING RETURNING schedule_id
)
SELECT schedule_id FROM fresh
UNION ALL
SELECT schedule_id FROM schedules WHERE key = $1
LIMIT 1;

-- name: touch_schedules
-- Inserts those of these schedules that are new. Sorted by the caller, so that concurrent inserts can't deadlock.
INSERT INTO schedules (key, content) SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT (key) DO NOTHING;

-- name: find_schedules
-- Ids of schedules by key, or by the digest of a long key.
SELECT schedule_id, key FROM schedules WHERE key = ANY ($1::text[]);

-- name: schedule_keys
-- The keys of these schedules.
SELECT schedule_id, coalesce(content, key) AS key FROM schedules WHERE schedule_id = ANY ($1::bigint[]);

-- name: shard_schedules
-- Every schedule with active jobs in these shards, by shard, to build a wheel from. Grouped before the join: a million
-- jobs on two hundred schedules take one pass over the jobs.
SELECT j.schedule_id, j.shard, coalesce(s.content, s.key) AS key, j.jobs,
       floor(extract(epoch FROM j.active_from) * 1000)::bigint AS active_from_ms, j.chained, j.jittered
FROM (
    SELECT schedule_id, shard, count(*) AS jobs, min(active_from) AS active_from,
           bool_or(overlap IN ('queue_one', 'queue_all', 'cancel_running')) AS chained,
           bool_or(jitter_ms IS NOT NULL OR needs OR flexible IS NOT NULL) AS jittered
    FROM jobs
    WHERE shard = ANY ($1::smallint[]) AND deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL
    GROUP BY schedule_id, shard
) AS j JOIN schedules s USING (schedule_id)
ORDER BY j.shard;

-- name: changed_schedules
-- The schedules of jobs edited since the changes of these shards were last loaded.
SELECT j.schedule_id, j.shard, coalesce(s.content, s.key) AS key, count(*) AS jobs,
       floor(extract(epoch FROM min(j.active_from)) * 1000)::bigint AS active_from_ms,
       bool_or(j.overlap IN ('queue_one', 'queue_all', 'cancel_running')) AS chained,
       bool_or(j.jitter_ms IS NOT NULL OR j.needs OR j.flexible IS NOT NULL) AS jittered
FROM unnest($1::smallint[], $2::bigint[]) AS loaded (shard, change)
JOIN jobs j ON j.shard = loaded.shard AND j.change > loaded.change
JOIN schedules s USING (schedule_id)
WHERE j.deleted_at IS NULL AND j.paused_at IS NULL
GROUP BY j.schedule_id, j.shard, s.schedule_id;

-- name: more_memory
-- For the rest of the transaction, so that a million schedules are grouped and joined in memory.
SELECT set_config('work_mem', '128MB', true);
