-- Planned starts of deadline-flexible jobs. The leader writes them ahead of the fires, and `fire_delayed` takes them.

-- name: has_flexible_jobs
-- Whether any active job is flexible.
SELECT EXISTS (SELECT FROM jobs WHERE flexible IS NOT NULL AND deleted_at IS NULL AND paused_at IS NULL);

-- name: flexible_groups
-- Active flexible jobs by schedule, queue and window: how many, and the jobs of groups with up to $2. At most $1 groups.
SELECT g.schedule_id, coalesce(s.content, s.key) AS key, g.queue, g.flexible, g.n, few.job_ids
FROM (
    SELECT schedule_id, queue, flexible, count(*) AS n FROM jobs
    WHERE flexible IS NOT NULL AND deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL
      AND (end_at IS NULL OR end_at > (SELECT db_now()))
    GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT $1
) AS g
JOIN schedules s USING (schedule_id)
CROSS JOIN LATERAL (
    SELECT array_agg(j.job_id ORDER BY j.job_id) AS job_ids FROM jobs j
    WHERE g.n <= $2 AND j.schedule_id = g.schedule_id AND j.queue = g.queue AND j.flexible = g.flexible
      AND j.deleted_at IS NULL AND j.paused_at IS NULL AND (j.end_at IS NULL OR j.end_at > (SELECT db_now()))
) AS few
ORDER BY g.schedule_id, g.queue, g.flexible;

-- name: fixed_loads
-- Active jobs of all tenants that start at their fires, by schedule and queue; the most shared first. $2: percentage of the
-- table's pages that is sampled.
SELECT s.schedule_id, coalesce(s.content, s.key) AS key, shared.queue, shared.n
FROM (
    SELECT schedule_id, queue, count(*) AS n FROM jobs TABLESAMPLE SYSTEM ($2)
    WHERE flexible IS NULL AND deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL
      AND (start_at IS NULL OR start_at <= (SELECT db_now())) AND (end_at IS NULL OR end_at > (SELECT db_now()))
    GROUP BY 1, 2 ORDER BY count(*) DESC, 1, 2 LIMIT $1
) AS shared
JOIN schedules s USING (schedule_id);

-- name: typical_durations
-- Mean duration since $3 of a few jobs on each of these schedules, in each of these queues; null if none of them ran.
SELECT w.schedule_id, w.queue, sum(r.duration_ms)::float8 / nullif(sum(r.succeeded + r.failed), 0)::float8 AS mean_ms
FROM unnest($1::bigint[], $2::text[]) AS w (schedule_id, queue)
CROSS JOIN LATERAL (
    SELECT job_id FROM jobs
    WHERE schedule_id = w.schedule_id AND queue = w.queue AND deleted_at IS NULL AND paused_at IS NULL LIMIT $4
) AS j
JOIN job_rollups r ON r.job_id = j.job_id AND r.at >= $3 AND r.queue = w.queue
GROUP BY w.schedule_id, w.queue;

-- name: longest_durations
-- The successes of each of these jobs since $2, and the bucket of the longest one.
SELECT job_id, sum(succeeded)::bigint AS succeeded, max(buckets[cardinality(buckets)]) AS bucket
FROM job_rollups WHERE job_id = ANY ($1::uuid[]) AND at >= $2 GROUP BY job_id;

-- name: taken_starts
-- Planned starts after $1 of fires before it: their executions exist, and wait.
SELECT queue, starts, takes_ms, executions FROM planned_starts
WHERE fire_at <= $1 AND fire_at > $1 - interval '1 day' AND ends_at > $1 LIMIT $2;

-- name: clear_planned_starts
-- Deletes the plans of fires after $1, which are planned again, and old ones.
DELETE FROM planned_starts WHERE fire_at > $1 OR fire_at < $1 - interval '2 days';

-- name: write_planned_starts
-- Writes plans. `starts` and `job_ids` are JSON arrays, because the lists differ in length.
INSERT INTO planned_starts (schedule_id, fire_at, queue, flexible, ends_at, starts, job_ids, takes_ms, executions)
SELECT w.schedule_id, w.fire_at, w.queue, w.flexible, w.ends_at,
       ARRAY(SELECT to_timestamp(ms::float8 / 1000) FROM jsonb_array_elements_text(w.starts) WITH ORDINALITY AS s (ms, n)
             ORDER BY n),
       CASE WHEN w.job_ids IS NOT NULL THEN
           ARRAY(SELECT id::uuid FROM jsonb_array_elements_text(w.job_ids) WITH ORDINALITY AS i (id, n) ORDER BY n) END,
       w.takes_ms, w.executions
FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::timestamptz[], $6::jsonb[], $7::jsonb[],
            $8::float8[], $9::int[])
    AS w (schedule_id, fire_at, queue, flexible, ends_at, starts, job_ids, takes_ms, executions)
ON CONFLICT (schedule_id, fire_at, queue, flexible) DO UPDATE
    SET ends_at = excluded.ends_at, starts = excluded.starts, job_ids = excluded.job_ids, takes_ms = excluded.takes_ms,
        executions = excluded.executions, planned_at = excluded.planned_at;

-- name: planned_starts_of_job
-- The planned starts of a job's fires among these, with their ends.
SELECT j.fire_at, j.ends_at, greatest(j.fire_at, <<planned_start>>) AS start_at
FROM (
    SELECT p.*, jobs.job_id, array_position(p.job_ids, jobs.job_id) AS place,
           execution_id(w.prefix, jobs.job_id, w.trigger_key) AS execution_id
    FROM jobs JOIN planned_starts p USING (schedule_id, queue, flexible)
    JOIN unnest($3::timestamptz[], $4::text[], $5::text[]) AS w (fire_at, prefix, trigger_key) USING (fire_at)
    WHERE jobs.job_id = $1 AND jobs.tenant_id = $2
) AS j;
