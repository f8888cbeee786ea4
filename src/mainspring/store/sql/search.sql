-- name: search_executions
-- Executions of a tenant that match a filter, newest first. Scans at most $8 rows, so that the work is bounded for any
-- filter; `floor` is the last row scanned if there are more.
WITH scanned AS MATERIALIZED (
    SELECT execution_id, state, queue, trigger, created_by, finished_at FROM all_executions
    WHERE tenant_id = $1 AND execution_id < $2 AND execution_id >= $4
    ORDER BY execution_id DESC LIMIT $8
)
SELECT ARRAY(
           SELECT execution_id FROM scanned
           WHERE ($5::text[] IS NULL OR state = ANY ($5)) AND ($6::text[] IS NULL OR queue = ANY ($6))
             AND ($7::text[] IS NULL OR trigger = ANY ($7)) AND ($9::text[] IS NULL OR created_by = ANY ($9)
                  OR regexp_replace(created_by, ' \[[0-9a-f]{8}\]$', '') = ANY ($9))
             AND ($10::timestamptz IS NULL OR finished_at >= $10)
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
        SELECT execution_id, state, queue, trigger, created_by, finished_at FROM history
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
             AND ($9::text[] IS NULL OR created_by = ANY ($9)
                  OR regexp_replace(created_by, ' \[[0-9a-f]{8}\]$', '') = ANY ($9))
             AND execution_id >= coalesce((SELECT execution_id FROM floor), $4)
             AND ($10::timestamptz IS NULL OR finished_at >= $10)
           ORDER BY execution_id DESC LIMIT $3
       ) AS found,
       (SELECT execution_id FROM floor) AS floor;

-- name: search_executions_of_jobs
-- The same within some jobs, each scanned by its own index. `floor`: where the first scan stopped.
WITH scanned AS MATERIALIZED (
    SELECT wanted.job_id, e.execution_id, e.state, e.queue, e.trigger, e.created_by, e.finished_at
    FROM unnest($9::uuid[]) AS wanted (job_id)
    CROSS JOIN LATERAL (
        SELECT execution_id, state, queue, trigger, created_by, finished_at FROM all_executions
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
             AND ($7::text[] IS NULL OR trigger = ANY ($7)) AND ($10::text[] IS NULL OR created_by = ANY ($10)
                  OR regexp_replace(created_by, ' \[[0-9a-f]{8}\]$', '') = ANY ($10))
             AND execution_id >= coalesce((SELECT execution_id FROM floor), $4)
             AND ($11::timestamptz IS NULL OR finished_at >= $11)
           ORDER BY execution_id DESC LIMIT $3
       ) AS found,
       (SELECT execution_id FROM floor) AS floor;

-- part: matching_jobs
-- Those of the scanned jobs that match everything. Definitions are read only of jobs that match everything else. `floor`
-- and `floor_id`: the last job scanned, if there are more.
likely AS MATERIALIZED (
    SELECT job_id, name, version FROM scanned
    WHERE ($4::text[] IS NULL OR NOT EXISTS (SELECT FROM unnest($4) AS t (word) WHERE position(lower(word) IN lower(name)) = 0))
      AND ($5::text[] IS NULL OR EXISTS (SELECT FROM unnest($5) AS n (prefix) WHERE starts_with(name, prefix)))
      AND ($6::boolean IS NULL OR (paused_at IS NOT NULL) = $6) AND ($7::text[] IS NULL OR queue = ANY ($7))
    ORDER BY name, job_id
)
SELECT ARRAY(
           SELECT l.job_id FROM likely l
           WHERE ($8::text[] IS NULL AND $9::jsonb IS NULL AND $13::text[] IS NULL) OR EXISTS (
               SELECT FROM job_versions v
               WHERE v.job_id = l.job_id AND v.version = l.version
                 AND ($13::text[] IS NULL OR v.created_by = ANY ($13)
                  OR regexp_replace(v.created_by, ' \[[0-9a-f]{8}\]$', '') = ANY ($13))
                 AND ($8::text[] IS NULL OR v.spec -> 'task' ->> 'kind' = ANY ($8) OR v.spec -> 'task' ->> 'type' = ANY ($8))
                 AND ($9::jsonb IS NULL OR NOT EXISTS (
                     SELECT FROM jsonb_each($9::jsonb) AS wanted
                     WHERE coalesce(v.spec -> 'labels' -> wanted.key, 'null') <> wanted.value
                       AND coalesce(v.spec -> 'metadata' -> wanted.key, 'null') <> wanted.value
                       AND coalesce(v.spec -> 'metadata' -> 'labels' -> wanted.key, 'null') <> wanted.value)))
           ORDER BY l.name, l.job_id LIMIT $3
       ) AS found,
       last.name AS floor, last.job_id AS floor_id
FROM (SELECT) AS one LEFT JOIN LATERAL (
    SELECT name, job_id FROM scanned WHERE (SELECT count(*) FROM scanned) = $10 ORDER BY name DESC, job_id DESC LIMIT 1
) AS last ON true

-- name: search_jobs
-- Jobs of a tenant that match a filter, by name. Scans at most $10 names in [$11, $12), the range of the wanted prefixes.
WITH scanned AS MATERIALIZED (
    SELECT job_id, name COLLATE "C" AS name, version, queue, paused_at FROM jobs
    WHERE tenant_id = $1 AND deleted_at IS NULL AND name COLLATE "C" > $2 AND name COLLATE "C" >= $11
      AND name COLLATE "C" < $12
    ORDER BY name COLLATE "C" LIMIT $10
), <<matching_jobs>>;

-- name: search_deleted_jobs
-- The same for deleted jobs, after the name $2 and the id $14: several may have had the same name.
WITH scanned AS MATERIALIZED (
    SELECT job_id, name COLLATE "C" AS name, version, queue, paused_at FROM jobs
    WHERE tenant_id = $1 AND deleted_at IS NOT NULL AND (name COLLATE "C", job_id) > ($2, $14::uuid)
      AND name COLLATE "C" >= $11 AND name COLLATE "C" < $12
    ORDER BY name COLLATE "C", job_id LIMIT $10
), <<matching_jobs>>;

-- name: jobs_by_id
-- Several jobs with their definitions and schedules, by name.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.job_id = ANY ($1::uuid[]) AND j.tenant_id = $2 ORDER BY j.name COLLATE "C", j.job_id;

-- name: job_stats
-- Statistics of each job since $4: the rollups of full hours, and the executions outside of them. Of those, the latest $5
-- are read: those due since $3 that finished before the first full hour, and those due since an hour before the end of the
-- rollups. Ids begin with the due time, so both are ranges of an index; what takes longer counts once it is rolled up.
WITH covered AS (
    SELECT lo, hi, (lpad(to_hex(floor(extract(epoch FROM lo) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid AS head_end,
           (lpad(to_hex(floor(extract(epoch FROM hi - interval '1 hour') * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid AS tail
    FROM (
        SELECT greatest(first_at, date_bin('1 hour', $4::timestamptz + interval '1 hour' - interval '1 microsecond', '2000-01-01Z')) AS lo,
               least(rolled_up_to, db_now()) AS hi
        FROM rollup_progress
    ) AS p
    WHERE lo < hi
), wanted AS (
    SELECT job_id FROM unnest($2::uuid[]) AS w (job_id)
)
SELECT w.job_id, r.succeeded, r.failed, r.skipped, NULL::float8[] AS ms, r.buckets, r.counts
FROM wanted w CROSS JOIN covered c JOIN job_rollups r ON r.job_id = w.job_id AND r.at >= c.lo AND r.tenant_id = $1
UNION ALL
SELECT w.job_id, s.succeeded, s.failed, s.skipped, s.ms, s.buckets, ARRAY(SELECT 1::bigint FROM unnest(s.buckets))
FROM wanted w
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost')) AS failed,
           count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
           coalesce(sum(fires) FILTER (WHERE state = 'skipped'), 0)::bigint AS skipped,
           percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY duration_ms)
               FILTER (WHERE state = 'succeeded') AS ms,
           array_agg(duration_bucket(duration_ms)) FILTER (WHERE state = 'succeeded' AND duration_ms IS NOT NULL) AS buckets
    FROM (
        (SELECT state, duration_ms, fires, execution_id FROM history
         WHERE job_id = w.job_id AND tenant_id = $1 AND execution_id >= $3 AND finished_at >= $4
           AND NOT EXISTS (SELECT FROM covered)
         ORDER BY execution_id DESC LIMIT $5)
        UNION ALL
        (SELECT state, duration_ms, fires, execution_id FROM covered c CROSS JOIN LATERAL (
             SELECT state, duration_ms, fires, execution_id FROM history
             WHERE job_id = w.job_id AND tenant_id = $1 AND execution_id >= greatest($3, c.tail) AND finished_at >= c.hi
             ORDER BY execution_id DESC LIMIT $5
         ) AS newest)
        UNION ALL
        (SELECT state, duration_ms, fires, execution_id FROM covered c CROSS JOIN LATERAL (
             SELECT state, duration_ms, fires, execution_id FROM history
             WHERE job_id = w.job_id AND tenant_id = $1 AND execution_id >= $3 AND execution_id < c.head_end
               AND finished_at >= $4 AND finished_at < c.lo
             ORDER BY execution_id DESC LIMIT $5
         ) AS oldest)
    ) AS outside
) AS s;

-- name: failing_jobs
-- Jobs whose latest ended execution failed, newest failure first. Reads the latest $2 failures since an instant by their
-- own index, and one row of each job.
WITH failures AS MATERIALIZED (
    SELECT job_id, finished_at FROM history
    WHERE tenant_id = $1 AND state IN ('failed', 'timed_out', 'lost') AND finished_at >= $3 AND trigger <> 'step'
    ORDER BY finished_at DESC LIMIT $2
), candidates AS (
    SELECT job_id, max(finished_at) AS failed_at FROM failures GROUP BY job_id ORDER BY 2 DESC LIMIT $4
)
SELECT c.job_id
FROM candidates c JOIN jobs j ON j.job_id = c.job_id AND j.tenant_id = $1 AND j.deleted_at IS NULL
CROSS JOIN LATERAL (
    SELECT h.state FROM history h
    WHERE h.job_id = c.job_id AND h.tenant_id = $1 AND h.trigger <> 'step'
      AND h.state IN ('succeeded', 'failed', 'timed_out', 'lost')
      AND h.finished_at >= $3 AND h.finished_at < $5  -- no days that are created ahead
    ORDER BY h.execution_id DESC LIMIT 1
) AS latest
WHERE latest.state <> 'succeeded' ORDER BY c.failed_at DESC;

-- name: overdue_jobs
-- Jobs with an execution that has never started and has been due for longer than $2, with the first such one of each
-- job and line, the longest wait first: the first $3 of each line are read.
SELECT * FROM (
    SELECT DISTINCT ON (e.job_id, l.line_id) e.job_id, j.name, e.execution_id, e.due_at, e.trigger, l.line_id, l.queue
    FROM lines l CROSS JOIN LATERAL (
        SELECT execution_id, job_id, due_at, trigger, attempt FROM executions
        WHERE line_id = l.line_id AND state = 'queued' ORDER BY rank, execution_id LIMIT $3
    ) AS e
    JOIN jobs j ON j.job_id = e.job_id AND j.tenant_id = $1 AND j.deleted_at IS NULL
    WHERE l.tenant_id = $1 AND e.attempt = 0 AND e.due_at < db_now() - $2::interval
    ORDER BY e.job_id, l.line_id, e.due_at
) AS waiting
ORDER BY due_at LIMIT $4;
