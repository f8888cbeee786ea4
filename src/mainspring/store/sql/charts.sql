-- Queries of the charts in the web UI. Each is bounded by what is shown, whatever the size of the tables.

-- name: steps_of_runs
-- States of steps in runs. $2, $3: arrays of runs and of the number of one step in each.
SELECT s.run_id, s.step, s.state, s.released_at, s.finished_at, s.execution_id
FROM unnest($2::uuid[], $3::int[]) AS w (run_id, step)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 AND s.tenant_id = $1 OFFSET 0
) AS s;

-- name: execution_times
-- Start and duration of live and ended executions. $3: none of them ended before it, which excludes older partitions.
SELECT execution_id, started_at, CASE WHEN finished_at IS NOT NULL THEN duration_ms END AS duration_ms
FROM all_executions
WHERE execution_id = ANY ($2::uuid[]) AND tenant_id = $1 AND started_at IS NOT NULL
  AND coalesce(finished_at, 'infinity') >= $3;

-- name: history_pages
-- Pages of each day of history; days without a partition are left out.
SELECT d.day, pg_relation_size(to_regclass('history_' || to_char(d.day, 'YYYYMMDD'))) / 8192 AS pages
FROM unnest($1::date[]) AS d (day)
WHERE to_regclass('history_' || to_char(d.day, 'YYYYMMDD')) IS NOT NULL;

-- name: fires_by_hour
-- Fires that ended on a day, counted by hour. $4: percentage of the day's pages that is sampled.
SELECT date_bin('1 hour', fire_at, '2000-01-01Z') AS hour, sum(fires)::bigint AS fires,
       count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost')) AS failed
FROM history TABLESAMPLE SYSTEM ($4)
WHERE tenant_id = $1 AND finished_at >= $2 AND finished_at < $3 AND trigger = 'fire'
GROUP BY hour;

-- name: unspread_jobs
-- A few active jobs without jitter on each of these schedules.
SELECT w.schedule_id, j.job_id, j.name
FROM unnest($2::bigint[]) AS w (schedule_id)
CROSS JOIN LATERAL (
    SELECT job_id, name FROM jobs
    WHERE schedule_id = w.schedule_id AND tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NULL
      AND jitter_ms IS NULL
    LIMIT $3
) AS j;

-- name: oldest_queued
-- When the execution that has waited longest was queued; only the head of each line is read.
SELECT min(next.queued_at)
FROM lines l
CROSS JOIN LATERAL (
    SELECT queued_at FROM executions WHERE state = 'queued' AND line_id = l.line_id
    ORDER BY rank, execution_id LIMIT 1
) AS next
WHERE l.tenant_id = $1;

