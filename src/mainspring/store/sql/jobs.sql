-- name: insert_job
-- Adds a job. The caller has locked its shard row (bump_shard), so the next tick reads it.
INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, start_at, end_at,
                  queue, priority, overlap, misfire, misfire_s, misfire_most, paused_at, created_at, updated_at,
                  pause_after, start_by_s, finish_by_s, max_gap_s, jitter_ms, calendars, line_id, limit_id, keyed,
                  flexible)
SELECT $1, $2, $3, 1, $4, $5, $6, $22, $7, $8, $9, $10, $11, $12, $14, $15, CASE WHEN $13 THEN now.at END, now.at,
       now.at, $16, $17, $18, $19, $20, $21, $23, $24, $25, $26
FROM (SELECT db_now()) AS now (at);

-- name: insert_version
-- Adds the immutable definition of one version.
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, tzdata, exceeds, preemptible)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: insert_jobs
-- Adds many jobs. The caller has locked their shard rows (bump_edited_shards).
INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, schedule_id, active_from, start_at, end_at,
                  queue, priority, overlap, misfire, misfire_s, misfire_most, paused_at, created_at, updated_at,
                  pause_after, start_by_s, finish_by_s, max_gap_s, jitter_ms, calendars, line_id, limit_id, keyed,
                  flexible)
SELECT w.job_id, $1, w.name, 1, w.shard, w.change, w.schedule_id, $2, w.start_at, w.end_at, w.queue, w.priority,
       w.overlap, w.misfire, w.misfire_s, w.misfire_most, CASE WHEN w.paused THEN now.at END, now.at, now.at,
       w.pause_after, w.start_by_s, w.finish_by_s, w.max_gap_s, w.jitter_ms,
       CASE WHEN w.calendars IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(w.calendars)) END,
       w.line_id, w.limit_id, w.keyed, w.flexible
FROM unnest($3::uuid[], $4::text[], $5::smallint[], $6::bigint[], $7::bool[], $8::bigint[], $9::timestamptz[],
            $10::timestamptz[], $11::text[], $12::smallint[], $13::text[], $14::text[], $15::float8[], $16::int[],
            $17::int[], $18::float8[], $19::float8[], $20::float8[], $21::int[], $22::jsonb[], $23::int[], $24::bigint[],
            $25::bool[], $26::text[])
    AS w (job_id, name, shard, change, paused, schedule_id, start_at, end_at, queue, priority, overlap, misfire,
          misfire_s, misfire_most, pause_after, start_by_s, finish_by_s, max_gap_s, jitter_ms, calendars, line_id,
          limit_id, keyed, flexible)
CROSS JOIN (SELECT db_now()) AS now (at);

-- name: insert_versions
-- Adds the immutable definitions of many versions.
INSERT INTO job_versions (job_id, version, tenant_id, spec, created_by, tzdata, exceeds, preemptible)
SELECT w.job_id, w.version, $1, w.spec, $2, $3, w.exceeds, w.preemptible
FROM unnest($4::uuid[], $5::int[], $6::jsonb[], $7::bool[], $8::bool[])
    AS w (job_id, version, spec, exceeds, preemptible);

-- name: update_jobs
-- Writes the columns of new versions of many jobs; the version that the caller read must still be current. Pauses stay.
UPDATE jobs j SET version = j.version + 1, change = w.change, schedule_id = w.schedule_id, start_at = w.start_at,
    end_at = w.end_at, queue = w.queue, priority = w.priority, overlap = w.overlap, misfire = w.misfire,
    misfire_s = w.misfire_s, misfire_most = w.misfire_most, pause_after = w.pause_after, start_by_s = w.start_by_s,
    finish_by_s = w.finish_by_s, max_gap_s = w.max_gap_s, jitter_ms = w.jitter_ms,
    calendars = CASE WHEN w.calendars IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(w.calendars)) END,
    line_id = w.line_id, limit_id = w.limit_id, keyed = w.keyed, flexible = w.flexible,
    active_from = CASE WHEN w.rescheduled THEN $2 ELSE j.active_from END, updated_at = db_now()
FROM unnest($3::uuid[], $4::int[], $5::bool[], $6::bigint[], $7::bigint[], $8::timestamptz[], $9::timestamptz[],
            $10::text[], $11::smallint[], $12::text[], $13::text[], $14::float8[], $15::int[], $16::int[],
            $17::float8[], $18::float8[], $19::float8[], $20::int[], $21::jsonb[], $22::int[], $23::bigint[],
            $24::bool[], $25::text[])
    AS w (job_id, version, rescheduled, change, schedule_id, start_at, end_at, queue, priority, overlap, misfire,
          misfire_s, misfire_most, pause_after, start_by_s, finish_by_s, max_gap_s, jitter_ms, calendars, line_id,
          limit_id, keyed, flexible)
WHERE j.job_id = w.job_id AND j.tenant_id = $1 AND j.version = w.version AND j.deleted_at IS NULL
RETURNING j.job_id;

-- name: lock_job
-- Locks a job until the end of the transaction.
SELECT j.*, v.spec, v.exceeds FROM jobs j JOIN job_versions v USING (job_id, version)
WHERE j.job_id = $1 AND j.tenant_id = $2 FOR NO KEY UPDATE OF j;

-- name: update_job
-- Writes the columns of a new version; the version that the caller read must still be current.
UPDATE jobs SET name = $4, version = version + 1, change = $5, schedule_id = $6, start_at = $7, end_at = $8,
    queue = $9, priority = $10, overlap = $11, misfire = $12, misfire_s = $15, misfire_most = $16,
    pause_after = $17, start_by_s = $18, finish_by_s = $19, max_gap_s = $20, jitter_ms = $21, calendars = $22,
    line_id = $24, limit_id = $25, keyed = $26, flexible = $27,
    needs = EXISTS (SELECT FROM job_needs n WHERE n.child_id = $1),
    active_from = CASE WHEN $13 OR (paused_at IS NOT NULL AND NOT $14) THEN $23 ELSE active_from END,
    paused_at = CASE WHEN $14 THEN coalesce(paused_at, db_now()) END,
    pause_reason = CASE WHEN $14 THEN pause_reason END, paused_until = CASE WHEN $14 THEN paused_until END,
    updated_at = db_now()
WHERE job_id = $1 AND tenant_id = $2 AND version = $3 AND deleted_at IS NULL
RETURNING version, active_from, paused_at;

-- name: pause_job
-- Pauses a job; until $5, if that is given.
UPDATE jobs SET paused_at = db_now(), pause_reason = $4, paused_until = $5, change = $3, updated_at = db_now()
WHERE job_id = $1 AND tenant_id = $2 AND paused_at IS NULL AND deleted_at IS NULL
RETURNING paused_at;

-- name: update_pause
-- Replaces the end of a pause, and its reason if a new one is given.
UPDATE jobs SET pause_reason = coalesce($3, pause_reason), paused_until = $4, updated_at = db_now()
WHERE job_id = $1 AND tenant_id = $2 AND paused_at IS NOT NULL AND deleted_at IS NULL;

-- name: resume_job
-- Fires again, from now on; with $4 only if the end of the pause has come.
UPDATE jobs SET paused_at = NULL, pause_reason = NULL, paused_until = NULL, change = $3, active_from = db_now(),
    updated_at = db_now()
WHERE job_id = $1 AND tenant_id = $2 AND paused_at IS NOT NULL AND deleted_at IS NULL
  AND (NOT $4 OR paused_until <= db_now())
RETURNING active_from;

-- name: delete_job
-- Deletes a job: no more fires, and its name is free; the history stays readable.
UPDATE jobs SET deleted_at = db_now(), change = $3, updated_at = db_now()
WHERE job_id = $1 AND tenant_id = $2 AND deleted_at IS NULL
RETURNING deleted_at;

-- name: job_by_id
-- One job with its definition and its schedule.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.job_id = $1 AND j.tenant_id = $2;

-- name: job_by_name
-- The job of that name that is not deleted.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.name = $1 AND j.tenant_id = $2 AND j.deleted_at IS NULL;

-- name: jobs_by_names
-- The jobs of these names that are not deleted.
SELECT j.*, v.spec, v.created_by, v.exceeds, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.tenant_id = $1 AND j.name = ANY ($2::text[]) AND j.deleted_at IS NULL;

-- name: deleted_job_by_name
-- The latest deleted job of that name.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.name COLLATE "C" = $1 AND j.tenant_id = $2 AND j.deleted_at IS NOT NULL
ORDER BY j.deleted_at DESC, j.job_id LIMIT 1;

-- name: jobs_of_name
-- All jobs that have, or had, this name: the present one, and the latest $3 deleted ones.
SELECT job_id FROM jobs WHERE name = $1 AND tenant_id = $2 AND deleted_at IS NULL
UNION ALL
(SELECT job_id FROM jobs WHERE name COLLATE "C" = $1 AND tenant_id = $2 AND deleted_at IS NOT NULL
 ORDER BY deleted_at DESC, job_id LIMIT $3);

-- name: similar_names
-- Names of jobs among which a mistyped one may be: those with the same first character ([$2, $3)), and the first ones.
(SELECT name FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL AND name COLLATE "C" >= $2 AND name COLLATE "C" < $3
 ORDER BY name COLLATE "C" LIMIT $4)
UNION
(SELECT name FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL ORDER BY name COLLATE "C" LIMIT $4);

-- name: mark_declared
-- Records that the current version of a job is the one that code declares.
UPDATE jobs SET declared_version = $3
WHERE job_id = $1 AND tenant_id = $2 AND version = $3 AND deleted_at IS NULL AND declared_version IS DISTINCT FROM $3;

-- name: list_jobs
-- A page of jobs by name, after a name, within [$4, $5), the range of a prefix.
SELECT j.*, v.spec, v.created_by, coalesce(s.content, s.key) AS schedule_key
FROM jobs j JOIN job_versions v USING (job_id, version) LEFT JOIN schedules s USING (schedule_id)
WHERE j.tenant_id = $1 AND j.deleted_at IS NULL AND j.name COLLATE "C" > $2 AND j.name COLLATE "C" >= $4
  AND j.name COLLATE "C" < $5
ORDER BY j.name COLLATE "C" LIMIT $3;

-- part: last_of_job
-- The latest 20 executions of the job wanted.job_id, newest first. Live ones come in order from executions_job: rows are
-- compared instead of job_id alone, so the planner cannot walk all live executions by id; `>=` implies the index's
-- condition. The days of history since $3 are read first, those since $4 only if these are not enough, and earlier ones
-- only after them: each day is a probe of its own, and $5 leaves out the empty days that are created ahead. The limit is
-- written out: with a parameter, PostgreSQL estimates a plan for all parameters as so costly that it plans each call
-- again, which took 2 ms with 30 days of history.
CROSS JOIN LATERAL (
    (SELECT execution_id, state, fire_at, NULL::timestamptz AS finished_at, NULL::int AS duration_ms FROM executions
     WHERE job_id >= wanted.job_id
       AND (job_id, execution_id) >= (wanted.job_id, '00000000-0000-0000-0000-000000000000'::uuid)
       AND (job_id, execution_id) <= (wanted.job_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
       AND tenant_id = $1
     ORDER BY job_id DESC, execution_id DESC LIMIT 20)
    UNION ALL
    (SELECT * FROM (
         (SELECT execution_id, state, fire_at, finished_at, duration_ms FROM history
          WHERE job_id = wanted.job_id AND tenant_id = $1 AND finished_at >= $3 AND finished_at < $5
          ORDER BY execution_id DESC LIMIT 20)
         UNION ALL
         (SELECT execution_id, state, fire_at, finished_at, duration_ms FROM history
          WHERE job_id = wanted.job_id AND tenant_id = $1 AND finished_at < $3 AND finished_at >= $4
          ORDER BY execution_id DESC LIMIT 20)
         UNION ALL
         (SELECT execution_id, state, fire_at, finished_at, duration_ms FROM history
          WHERE job_id = wanted.job_id AND tenant_id = $1 AND finished_at < $4
          ORDER BY execution_id DESC LIMIT 20)
     ) AS past LIMIT 20)
    ORDER BY execution_id DESC LIMIT 20
) AS e

-- name: last_executions
-- The latest 20 executions of each of these jobs.
SELECT wanted.job_id, e.execution_id, e.state, e.fire_at, e.finished_at, e.duration_ms
FROM unnest($2::uuid[]) AS wanted (job_id) <<last_of_job>>;

-- name: last_executions_of_job
-- The same for one job, with a plan that is kept; an array is planned each time.
SELECT wanted.job_id, e.execution_id, e.state, e.fire_at, e.finished_at, e.duration_ms
FROM (SELECT $2::uuid AS job_id) AS wanted <<last_of_job>>;

-- name: definitions
-- The definitions of these versions, for dispatch and settling; they never change, so callers cache them.
SELECT v.job_id, v.version, v.spec, v.exceeds FROM unnest($1::uuid[], $2::int[]) AS wanted (job_id, version)
JOIN job_versions v USING (job_id, version);

-- name: list_versions
-- The versions of a job, newest first, before a number.
SELECT version, spec, created_at, created_by, tzdata FROM job_versions
WHERE job_id = $1 AND tenant_id = $2 AND version < $3 ORDER BY version DESC LIMIT $4;

-- name: find_jobs
-- Ids and versions of jobs by name or id, for batches.
SELECT job_id, name, version FROM jobs
WHERE tenant_id = $1 AND deleted_at IS NULL AND (name = ANY ($2::text[]) OR job_id = ANY ($3::uuid[]));

-- name: tenant_schedules
-- The distinct schedules of a tenant's active jobs, with how many jobs share each.
SELECT j.schedule_id, coalesce(s.content, s.key) AS key, count(*) AS jobs FROM jobs j JOIN schedules s USING (schedule_id)
WHERE j.tenant_id = $1 AND j.deleted_at IS NULL AND j.paused_at IS NULL
GROUP BY j.schedule_id, s.schedule_id LIMIT $2;

-- name: has_many_jobs
-- Whether a tenant has more than $2 jobs.
SELECT count(*) > $2 FROM (SELECT FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL LIMIT $2 + 1) AS few;

-- name: walked_schedules
-- The same for a tenant with very many jobs: walks the index from one distinct schedule to the next, $3 at most, without
-- reading the jobs that share one.
WITH RECURSIVE walk AS (
    (SELECT schedule_id, 1 AS n FROM jobs
     WHERE deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL ORDER BY schedule_id LIMIT 1)
    UNION ALL
    SELECT next.schedule_id, walk.n + 1 FROM walk CROSS JOIN LATERAL (
        SELECT schedule_id FROM jobs
        WHERE deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL AND schedule_id > walk.schedule_id
        ORDER BY schedule_id LIMIT 1
    ) AS next
    WHERE walk.n < $3
)
SELECT s.schedule_id, coalesce(s.content, s.key) AS key FROM walk JOIN schedules s USING (schedule_id)
WHERE EXISTS (
    SELECT FROM jobs j
    WHERE j.schedule_id = walk.schedule_id AND j.tenant_id = $1 AND j.deleted_at IS NULL AND j.paused_at IS NULL
)
LIMIT $2;

-- name: estimated_jobs
-- Estimated number of jobs over all tenants, as of the last ANALYZE; -1 if there was none yet.
SELECT reltuples FROM pg_class WHERE oid = 'jobs'::regclass;

-- name: schedule_loads
-- Number of active jobs of a tenant that share a schedule, a start and an end; the most shared first. $3: percentage of
-- the table's pages that is sampled, so that the work is bounded for any number of jobs. $4: by queue as well.
SELECT s.schedule_id, coalesce(s.content, s.key) AS key, shared.start_at, shared.end_at, shared.queue, shared.jobs
FROM (
    SELECT schedule_id, start_at, end_at, CASE WHEN $4 THEN queue ELSE '' END AS queue, count(*) AS jobs
    FROM jobs TABLESAMPLE SYSTEM ($3)
    WHERE tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NULL AND schedule_id IS NOT NULL
      AND (end_at IS NULL OR end_at > (SELECT db_now()))
    GROUP BY 1, 2, 3, 4 ORDER BY count(*) DESC, schedule_id, 4 LIMIT $2
) AS shared
JOIN schedules s USING (schedule_id);

-- name: jobs_on_schedules
-- A few active jobs on each of these schedules, with their queues.
SELECT w.schedule_id, j.job_id, j.name, j.queue
FROM unnest($2::bigint[]) AS w (schedule_id)
CROSS JOIN LATERAL (
    SELECT job_id, name, queue FROM jobs
    WHERE schedule_id = w.schedule_id AND tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NULL
      AND (start_at IS NULL OR start_at <= db_now()) AND (end_at IS NULL OR end_at > db_now())
    LIMIT $3
) AS j;

-- name: keyed_specs
-- Definitions of those jobs whose limit keys depend on params.
SELECT j.job_id, v.spec FROM jobs j JOIN job_versions v USING (job_id, version)
WHERE j.tenant_id = $1 AND j.job_id = ANY ($2::uuid[]) AND j.keyed AND j.deleted_at IS NULL;

-- name: job_counts
-- Number of jobs, and of paused jobs.
SELECT count(*) AS jobs, count(paused_at) AS paused FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL;
