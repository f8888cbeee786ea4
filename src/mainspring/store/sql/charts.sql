-- What the pictures of the web UI read. Every statement here is bounded by what is shown, whatever the tables hold.

-- name: steps_of_runs
-- How some steps went in some runs: step and run by number. $2: arrays of runs and of a step each.
SELECT s.run_id, s.step, s.state, s.released_at, s.finished_at, s.execution_id
FROM unnest($2::uuid[], $3::int[]) AS w (run_id, step)
CROSS JOIN LATERAL (
    SELECT * FROM run_steps s WHERE s.run_id = w.run_id AND s.step = w.step AND s.item = -1 AND s.tenant_id = $1 OFFSET 0
) AS s;

-- name: started_executions
-- When executions started, live or ended. $3: none of them ended before, which rules out older partitions.
SELECT execution_id, started_at FROM all_executions
WHERE execution_id = ANY ($2::uuid[]) AND tenant_id = $1 AND started_at IS NOT NULL
  AND coalesce(finished_at, 'infinity') >= $3;

-- name: history_pages
-- How many pages each day of history has; days that have no partition are left out.
SELECT d.day, pg_relation_size(to_regclass('history_' || to_char(d.day, 'YYYYMMDD'))) / 8192 AS pages
FROM unnest($1::date[]) AS d (day)
WHERE to_regclass('history_' || to_char(d.day, 'YYYYMMDD')) IS NOT NULL;

-- name: fires_by_hour
-- What ended on a day, counted by the hour of its fire. $4 is the part of the day's pages that is read, in percent.
SELECT date_bin('1 hour', fire_at, '2000-01-01Z') AS hour, sum(fires)::bigint AS fires,
       count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost')) AS failed
FROM history TABLESAMPLE SYSTEM ($4)
WHERE tenant_id = $1 AND finished_at >= $2 AND finished_at < $3 AND trigger = 'fire'
GROUP BY hour;

-- name: unspread_jobs
-- A few active jobs on each of these schedules whose starts are not spread by a jitter.
SELECT w.schedule_id, j.job_id, j.name
FROM unnest($2::bigint[]) AS w (schedule_id)
CROSS JOIN LATERAL (
    SELECT job_id, name FROM jobs
    WHERE schedule_id = w.schedule_id AND tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NULL
      AND jitter_ms IS NULL
    LIMIT $3
) AS j;

-- name: oldest_queued
-- Since when the one waits that has waited longest of those next in line.
SELECT min(next.queued_at)
FROM lines l
CROSS JOIN LATERAL (
    SELECT queued_at FROM executions WHERE state = 'queued' AND line_id = l.line_id
    ORDER BY rank, execution_id LIMIT 1
) AS next
WHERE l.tenant_id = $1;

