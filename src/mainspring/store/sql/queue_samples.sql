-- name: write_queue_samples
-- Writes the sample of a minute, unless it exists, and deletes those older than $5 seconds.
WITH clock AS (SELECT date_trunc('minute', to_timestamp($1::float8 / 1000)) AS minute),
gone AS (
    DELETE FROM queue_sample_times WHERE sampled_at < (SELECT minute FROM clock) - make_interval(secs => $5)
),
made AS (
    INSERT INTO queue_sample_times (sampled_at) SELECT minute FROM clock ON CONFLICT DO NOTHING RETURNING sampled_at
)
INSERT INTO queue_samples (tenant_id, sampled_at, queue, depth)
SELECT s.tenant_id, made.sampled_at, s.queue, s.depth
FROM made CROSS JOIN unnest($2::int[], $3::text[], $4::int[]) AS s (tenant_id, queue, depth);

-- name: queue_depth_samples
-- The highest depth of a tenant's queues in each interval of $3 seconds since $2 seconds ago: of the $4 deepest queues.
-- A row without a queue says that the interval was sampled.
WITH times AS (
    SELECT sampled_at, to_timestamp(floor(extract(epoch FROM sampled_at) / $3) * $3) AS at FROM queue_sample_times
    WHERE sampled_at > (SELECT db_now()) - make_interval(secs => $2)
), found AS (
    SELECT t.at, s.queue, max(s.depth) AS depth
    FROM queue_samples s JOIN times t USING (sampled_at)
    WHERE s.tenant_id = $1 AND s.sampled_at > (SELECT db_now()) - make_interval(secs => $2)
    GROUP BY t.at, s.queue
), deepest AS (
    SELECT queue FROM found GROUP BY queue ORDER BY max(depth) DESC, queue LIMIT $4
)
SELECT at, queue, depth FROM found JOIN deepest USING (queue)
UNION ALL
SELECT DISTINCT at, NULL, 0 FROM times
ORDER BY at;
