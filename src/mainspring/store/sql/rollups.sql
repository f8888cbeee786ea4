-- Hourly statistics: the leader adds up what finished since the last time. Nothing is written when an execution settles.

-- name: lock_rollups
-- How far history is added up; and how far it can be, at least $1 seconds ago: what finished before `ready` is committed. finished_at is read when a
-- statement runs, so a row that is not visible yet belongs to a transaction that began before it. Transactions that have
-- not written anything are ignored.
SELECT p.first_at, p.rolled_up_to, db_now() - greatest(
    make_interval(secs => $1),
    (SELECT clock_timestamp() - min(a.xact_start) + interval '1 second' FROM pg_stat_activity a
     WHERE a.backend_xid IS NOT NULL AND a.datname = current_database() AND a.pid <> pg_backend_pid())
) AS ready
FROM rollup_progress p FOR UPDATE;

-- name: restart_rollups
-- Continues at the full hour $1, and gives up what is older.
UPDATE rollup_progress SET first_at = $1, rolled_up_to = $1;

-- part: totals
sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed, sum(cancelled)::bigint AS cancelled,
sum(skipped)::bigint AS skipped, sum(duration_ms)::bigint AS duration_ms, sum(wait_ms)::bigint AS wait_ms,
coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{}') AS buckets,
coalesce(array_agg(measured ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{}') AS counts

-- part: added
succeeded = r.succeeded + excluded.succeeded, failed = r.failed + excluded.failed,
cancelled = r.cancelled + excluded.cancelled, skipped = r.skipped + excluded.skipped,
duration_ms = r.duration_ms + excluded.duration_ms, wait_ms = r.wait_ms + excluded.wait_ms,
buckets = merged_buckets(r.buckets, excluded.buckets),
counts = merged_counts(r.buckets, r.counts, excluded.buckets, excluded.counts)

-- name: roll_up
-- Adds what finished in [$1, $2) to the rollups. The caller has locked the progress and read $1 from it.
WITH moved AS (
    UPDATE rollup_progress SET rolled_up_to = $2 WHERE rolled_up_to = $1 RETURNING rolled_up_to
), recent AS MATERIALIZED (
    SELECT tenant_id, job_id, queue, date_bin('1 hour', finished_at, '2000-01-01Z') AS at,
           CASE WHEN state = 'succeeded' THEN duration_bucket(duration_ms) END AS bucket, count(*) AS measured,
           count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'lost')) AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
           coalesce(sum(fires) FILTER (WHERE state = 'skipped'), 0) AS skipped,
           coalesce(sum(duration_ms), 0) AS duration_ms,
           coalesce(sum(greatest(0, extract(epoch FROM started_at - due_at) * 1000)::bigint), 0) AS wait_ms
    FROM history CROSS JOIN moved
    WHERE finished_at >= $1 AND finished_at < $2
      AND greatest(finished_at, finished_at) >= $1 AND greatest(finished_at, finished_at) < $2
    GROUP BY 1, 2, 3, 4, 5
), of_jobs AS (
    INSERT INTO job_rollups AS r (tenant_id, job_id, queue, at, succeeded, failed, cancelled, skipped, duration_ms,
                                  wait_ms, buckets, counts)
    SELECT tenant_id, job_id, queue, at, <<totals>> FROM recent GROUP BY tenant_id, job_id, queue, at
    ON CONFLICT (job_id, at, queue) DO UPDATE SET <<added>>
), by_queue AS (
    SELECT tenant_id, queue, at, bucket, sum(measured) AS measured, sum(succeeded) AS succeeded, sum(failed) AS failed,
           sum(cancelled) AS cancelled, sum(skipped) AS skipped, sum(duration_ms) AS duration_ms,
           sum(wait_ms) AS wait_ms
    FROM recent GROUP BY tenant_id, queue, at, bucket
), of_queues AS (
    INSERT INTO queue_rollups AS r (tenant_id, queue, at, succeeded, failed, cancelled, skipped, duration_ms, wait_ms,
                                    buckets, counts)
    SELECT tenant_id, queue, at, <<totals>> FROM by_queue GROUP BY tenant_id, queue, at
    ON CONFLICT (tenant_id, at, queue) DO UPDATE SET <<added>>
)
SELECT coalesce(sum(measured), 0)::bigint FROM recent;

-- name: forget_rollups
-- Deletes up to $2 rollups of jobs that are older than $1 seconds, and those of queues.
WITH queues AS (
    DELETE FROM queue_rollups WHERE at < (SELECT db_now()) - make_interval(secs => $1)
), usages AS (
    DELETE FROM job_usage WHERE (job_id, day) IN (
        SELECT job_id, day FROM job_usage
        WHERE day < ((SELECT db_now()) AT TIME ZONE 'UTC')::date - ceil($1 / 86400)::int ORDER BY day LIMIT $2
    )
)
DELETE FROM job_rollups WHERE (job_id, at, queue) IN (
    SELECT job_id, at, queue FROM job_rollups WHERE at < (SELECT db_now()) - make_interval(secs => $1)
    ORDER BY at LIMIT $2
) RETURNING 1;

-- name: queue_totals
-- Totals of the $3 queues of a tenant with the longest total duration since an instant. Added up here: a month of hours of
-- many queues is too much for an event loop.
WITH hours AS MATERIALIZED (
    SELECT * FROM queue_rollups WHERE tenant_id = $1 AND at >= $2
), totals AS (
    SELECT queue, sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed,
           sum(cancelled)::bigint AS cancelled, sum(skipped)::bigint AS skipped,
           sum(duration_ms)::bigint AS duration_ms, sum(wait_ms)::bigint AS wait_ms
    FROM hours GROUP BY queue ORDER BY sum(duration_ms) DESC, queue LIMIT $3
), durations AS (
    SELECT queue, array_agg(bucket) AS buckets, array_agg(count) AS counts FROM (
        SELECT h.queue, d.bucket, sum(d.count)::bigint AS count
        FROM hours h JOIN totals USING (queue), unnest(h.buckets, h.counts) AS d (bucket, count)
        GROUP BY h.queue, d.bucket
    ) AS counted GROUP BY queue
)
SELECT t.*, coalesce(d.buckets, '{}') AS buckets, coalesce(d.counts, '{}') AS counts
FROM totals t LEFT JOIN durations d USING (queue);

-- part: priced
sum(duration_ms * coalesce(factor, 1))::float8 AS priced_ms

-- part: factors
LEFT JOIN unnest($4::timestamptz[], $5::float8[]) AS f (at, factor) USING (at)

-- name: job_totals
-- Totals of the $3 jobs of a tenant with the longest total duration since an instant, and the definition of each. $4, $5:
-- hours with other prices, and the factor of each, for `priced_ms`.
SELECT t.*, j.name, v.spec FROM (
    SELECT job_id, queue, sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed,
           sum(cancelled)::bigint AS cancelled, sum(skipped)::bigint AS skipped,
           sum(duration_ms)::bigint AS duration_ms, sum(wait_ms)::bigint AS wait_ms, <<priced>>
    FROM job_rollups <<factors>> WHERE tenant_id = $1 AND at >= $2
    GROUP BY job_id, queue ORDER BY sum(duration_ms) DESC, job_id LIMIT $3
) AS t
JOIN jobs j USING (job_id) JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
ORDER BY t.duration_ms DESC, t.job_id;

-- name: rollup_progress
-- Since when, and up to when, history is added up.
SELECT first_at, rolled_up_to FROM rollup_progress;

-- name: usage_by_demand
-- Totals since an instant by tenant, queue and requested resources of the jobs; of tenant $1, or of all if it is null. At
-- most $3 combinations, those with the longest total duration. $4, $5 as in job_totals.
SELECT n.name AS tenant, t.queue, coalesce(v.spec -> 'resources', '{}') AS resources,
       sum(t.succeeded)::bigint AS succeeded, sum(t.failed)::bigint AS failed, sum(t.cancelled)::bigint AS cancelled,
       sum(t.skipped)::bigint AS skipped, sum(t.duration_ms)::bigint AS duration_ms, sum(t.wait_ms)::bigint AS wait_ms,
       sum(t.priced_ms) AS priced_ms
FROM (
    SELECT tenant_id, job_id, queue, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled,
           sum(skipped) AS skipped, sum(duration_ms) AS duration_ms, sum(wait_ms) AS wait_ms, <<priced>>
    FROM job_rollups <<factors>> WHERE ($1::int IS NULL OR tenant_id = $1) AND at >= $2
    GROUP BY tenant_id, job_id, queue
) AS t
JOIN tenants n USING (tenant_id) JOIN jobs j USING (job_id)
JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
GROUP BY n.name, t.queue, coalesce(v.spec -> 'resources', '{}')
ORDER BY sum(t.duration_ms) DESC, n.name, t.queue LIMIT $3;

-- name: mean_durations
-- Mean duration since an instant of the executions of a tenant's jobs on the same schedule and in the same queue; the $3
-- combinations with the longest total duration.
SELECT j.schedule_id, t.queue, sum(t.duration_ms)::float8 / sum(t.ran)::float8 AS mean_ms
FROM (
    SELECT job_id, queue, sum(duration_ms) AS duration_ms, sum(succeeded + failed) AS ran
    FROM job_rollups WHERE tenant_id = $1 AND at >= $2
    GROUP BY job_id, queue
) AS t
JOIN jobs j USING (job_id)
WHERE j.schedule_id IS NOT NULL AND j.deleted_at IS NULL
GROUP BY j.schedule_id, t.queue HAVING sum(t.ran) > 0
ORDER BY sum(t.duration_ms) DESC, j.schedule_id, t.queue LIMIT $3;
