-- name: search_executions
-- Executions of a tenant that match a filter, newest first. Scans at most $8 rows, so that the work is bounded for any
-- filter; `floor` is the last row scanned if there are more.
WITH scanned AS MATERIALIZED (
    SELECT execution_id, state, queue, trigger, created_by FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 AND execution_id >= $4
    ORDER BY execution_id DESC LIMIT $8
)
SELECT ARRAY(
           SELECT execution_id FROM scanned
           WHERE ($5::text[] IS NULL OR state = ANY ($5)) AND ($6::text[] IS NULL OR queue = ANY ($6))
             AND ($7::text[] IS NULL OR trigger = ANY ($7)) AND ($9::text[] IS NULL OR created_by = ANY ($9))
           ORDER BY execution_id DESC LIMIT $3
       ) AS found,
       (SELECT execution_id FROM scanned WHERE (SELECT count(*) FROM scanned) = $8 ORDER BY execution_id LIMIT 1) AS floor;

-- name: search_unsuccessful
-- The same for states other than succeeded: each is scanned by its own index, at most $8 rows of each state. `floor`:
-- where the first scan stopped.
WITH scanned AS MATERIALIZED (
    SELECT e.*
    FROM unnest($5::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
        SELECT execution_id, state, queue, trigger, created_by FROM history
        WHERE tenant_id = $1 AND state = wanted.state AND state <> 'succeeded' AND execution_id < $2
          AND execution_id >= $4
        ORDER BY execution_id DESC LIMIT $8
    ) AS e
), floors AS (
    SELECT (array_agg(execution_id ORDER BY execution_id))[1] AS execution_id FROM scanned
    GROUP BY state HAVING count(*) = $8
), floor AS (
    SELECT execution_id FROM floors ORDER BY execution_id DESC LIMIT 1
)
SELECT ARRAY(
           SELECT execution_id FROM scanned
           WHERE ($6::text[] IS NULL OR queue = ANY ($6)) AND ($7::text[] IS NULL OR trigger = ANY ($7))
             AND ($9::text[] IS NULL OR created_by = ANY ($9))
             AND execution_id >= coalesce((SELECT execution_id FROM floor), $4)
           ORDER BY execution_id DESC LIMIT $3
       ) AS found,
       (SELECT execution_id FROM floor) AS floor;

-- name: search_executions_of_jobs
-- The same within some jobs, each scanned by its own index. `floor`: where the first scan stopped.
WITH scanned AS MATERIALIZED (
    SELECT wanted.job_id, e.execution_id, e.state, e.queue, e.trigger, e.created_by
    FROM unnest($9::uuid[]) AS wanted (job_id)
    CROSS JOIN LATERAL (
        SELECT execution_id, state, queue, trigger, created_by FROM all_executions
        WHERE tenant_id = $1 AND job_id = wanted.job_id AND execution_id < $2 AND execution_id >= $4
        ORDER BY execution_id DESC LIMIT $8
    ) AS e
), floors AS (
    SELECT (array_agg(execution_id ORDER BY execution_id))[1] AS execution_id FROM scanned
    GROUP BY job_id HAVING count(*) = $8
), floor AS (
    SELECT execution_id FROM floors ORDER BY execution_id DESC LIMIT 1
)
SELECT ARRAY(
           SELECT execution_id FROM scanned
           WHERE ($5::text[] IS NULL OR state = ANY ($5)) AND ($6::text[] IS NULL OR queue = ANY ($6))
             AND ($7::text[] IS NULL OR trigger = ANY ($7)) AND ($10::text[] IS NULL OR created_by = ANY ($10))
             AND execution_id >= coalesce((SELECT execution_id FROM floor), $4)
           ORDER BY execution_id DESC LIMIT $3
       ) AS found,
       (SELECT execution_id FROM floor) AS floor;

-- name: search_jobs
-- Jobs of a tenant that match a filter, by name. Scans at most $10 names in [$11, $12), the range of the wanted prefixes;
-- `floor` is the last name scanned if there are more. Definitions are read only of jobs that match everything else.
WITH scanned AS MATERIALIZED (
    SELECT job_id, name COLLATE "C" AS name, version, queue, paused_at FROM jobs
    WHERE tenant_id = $1 AND deleted_at IS NULL AND name COLLATE "C" > $2 AND name COLLATE "C" >= $11
      AND name COLLATE "C" < $12
    ORDER BY name COLLATE "C" LIMIT $10
), likely AS MATERIALIZED (
    SELECT job_id, name, version FROM scanned
    WHERE ($4::text[] IS NULL OR NOT EXISTS (SELECT FROM unnest($4) AS t (word) WHERE position(lower(word) IN lower(name)) = 0))
      AND ($5::text[] IS NULL OR EXISTS (SELECT FROM unnest($5) AS n (prefix) WHERE starts_with(name, prefix)))
      AND ($6::boolean IS NULL OR (paused_at IS NOT NULL) = $6) AND ($7::text[] IS NULL OR queue = ANY ($7))
    ORDER BY name
)
SELECT ARRAY(
           SELECT l.job_id FROM likely l
           WHERE ($8::text[] IS NULL AND $9::jsonb IS NULL AND $13::text[] IS NULL) OR EXISTS (
               SELECT FROM job_versions v
               WHERE v.job_id = l.job_id AND v.version = l.version
                 AND ($13::text[] IS NULL OR v.created_by = ANY ($13))
                 AND ($8::text[] IS NULL OR v.spec -> 'task' ->> 'kind' = ANY ($8) OR v.spec -> 'task' ->> 'type' = ANY ($8))
                 AND ($9::jsonb IS NULL OR NOT EXISTS (
                     SELECT FROM jsonb_each($9::jsonb) AS wanted
                     WHERE coalesce(v.spec -> 'labels' -> wanted.key, 'null') <> wanted.value
                       AND coalesce(v.spec -> 'metadata' -> wanted.key, 'null') <> wanted.value
                       AND coalesce(v.spec -> 'metadata' -> 'labels' -> wanted.key, 'null') <> wanted.value)))
           ORDER BY l.name LIMIT $3
       ) AS found,
       (SELECT name FROM scanned WHERE (SELECT count(*) FROM scanned) = $10 ORDER BY name DESC LIMIT 1) AS floor;

-- name: jobs_by_id
-- Several jobs with their definitions and schedules, by name.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.job_id = ANY ($1::uuid[]) AND j.tenant_id = $2 ORDER BY j.name COLLATE "C";

-- name: job_stats
-- Statistics of the latest $5 executions of each job since an instant.
SELECT wanted.job_id, s.ended, s.succeeded, s.ms
FROM unnest($2::uuid[]) AS wanted (job_id)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state IN ('succeeded', 'failed', 'timed_out', 'lost')) AS ended,
           count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
           percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY duration_ms)
               FILTER (WHERE state = 'succeeded') AS ms
    FROM (
        SELECT state, duration_ms FROM history
        WHERE job_id = wanted.job_id AND tenant_id = $1 AND execution_id >= $3 AND finished_at >= $4
        ORDER BY execution_id DESC LIMIT $5
    ) AS latest
) AS s;
