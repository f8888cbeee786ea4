-- What attempts used. Workers report it with their heartbeats, so settling an execution writes nothing for it.

-- name: add_usage
-- Adds what a live session reports of jobs in its queues. Jobs of other tenants and queues are left out: a worker can't
-- change what is suggested for them. Sorted, so that concurrent reports can't deadlock.
INSERT INTO job_usage AS u (job_id, day, tenant_id, attempts, cpu_ms, wall_ms, cores_max, memory_max)
SELECT j.job_id, (db_now() AT TIME ZONE 'UTC')::date, j.tenant_id, w.attempts, w.cpu_ms, w.wall_ms, w.cores_max,
       w.memory_max
FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::bigint[])
    AS w (job_id, attempts, cpu_ms, wall_ms, cores_max, memory_max)
JOIN sessions s ON s.session_id = $1 AND s.ended_at IS NULL
JOIN jobs j ON j.job_id = w.job_id AND (j.tenant_id = s.tenant_id OR s.shared) AND j.queue = ANY (s.queues)
ORDER BY j.job_id
ON CONFLICT (job_id, day) DO UPDATE
    SET attempts = u.attempts + excluded.attempts, cpu_ms = u.cpu_ms + excluded.cpu_ms,
        wall_ms = u.wall_ms + excluded.wall_ms, cores_max = greatest(u.cores_max, excluded.cores_max),
        memory_max = greatest(u.memory_max, excluded.memory_max);

-- name: usage_of_job
-- What the attempts of a job used since a day; no row without attempts.
SELECT sum(attempts)::bigint AS attempts, sum(cpu_ms)::bigint AS cpu_ms, sum(wall_ms)::bigint AS wall_ms,
       max(cores_max) AS cores_max, max(memory_max) AS memory_max, min(day) AS since
FROM job_usage WHERE job_id = $1 AND tenant_id = $2 AND day >= $3 HAVING count(*) > 0;

-- name: duration_buckets
-- The durations of a job's successes since an instant, by bucket.
SELECT buckets, counts FROM job_rollups WHERE job_id = $1 AND tenant_id = $2 AND at >= $3;
