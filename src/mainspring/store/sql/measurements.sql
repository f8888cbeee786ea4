-- Figures for alert rules. Every statement here reads a bounded number of rows, however large the tables are.

-- name: write_measurement
-- Publishes the figures of one process, and deletes those older than an hour.
WITH gone AS (DELETE FROM measurements WHERE measured_at < (SELECT db_now()) - interval '1 hour')
INSERT INTO measurements (process_id, name, figures) VALUES ($1, $2, $3)
ON CONFLICT (process_id) DO UPDATE SET figures = $3, measured_at = db_now();

-- name: readings
-- Figures of all tenants, and those of processes published in the last half minute; the first row is the time.
-- $1: executions sampled, $2: jobs with deadlines read, $3: the highest depth counted.
WITH RECURSIVE clock AS (
    SELECT now, (lpad(to_hex(floor(extract(epoch FROM now - interval '1 hour') * 1000)::bigint), 12, '0')
                 || repeat('0', 20))::uuid AS lowest
    FROM (SELECT db_now()) AS c (now)
), <<nonempty_lines>>, waiting AS (
    SELECT l.tenant_id, l.queue, array_agg(line_id) AS line_ids FROM found JOIN lines l USING (line_id)
    GROUP BY l.tenant_id, l.queue
), sample AS (
    SELECT tenant_id, state FROM (
        SELECT tenant_id, state FROM history
        WHERE execution_id >= (SELECT lowest FROM clock) AND finished_at >= (SELECT now FROM clock) - interval '1 hour'
        ORDER BY execution_id DESC LIMIT $1
    ) AS newest
    WHERE state IN ('succeeded', 'failed', 'timed_out', 'lost')
), promised AS (
    SELECT j.job_id, j.tenant_id, j.finish_by_s FROM jobs j
    WHERE (j.finish_by_s IS NOT NULL OR j.max_gap_s IS NOT NULL) AND j.deleted_at IS NULL AND j.paused_at IS NULL
    LIMIT $2
), kept AS (
    SELECT p.tenant_id,
           h.state = 'succeeded' AND h.finished_at <= h.fire_at + make_interval(secs => p.finish_by_s) AS kept
    FROM promised p CROSS JOIN LATERAL (
        SELECT state, finished_at, fire_at, trigger FROM history
        WHERE job_id = p.job_id AND execution_id >= (SELECT lowest FROM clock)
          AND finished_at >= (SELECT now FROM clock) - interval '1 hour'
        ORDER BY execution_id DESC LIMIT 10
    ) AS h
    WHERE p.finish_by_s IS NOT NULL AND h.trigger = 'fire' AND h.state IN ('succeeded', 'failed', 'timed_out', 'lost')
), expected AS (
    SELECT tenant_id, job_id, sla_at, finished_at IS NULL AS open,
           coalesce(state = 'succeeded' AND finished_at <= sla_at, false) AS kept
    FROM runs
    WHERE sla_at <= (SELECT now FROM clock) AND sla_at > (SELECT now FROM clock) - interval '1 day'
    ORDER BY sla_at DESC LIMIT $1
), late AS (
    SELECT tenant_id, job_id FROM (
        SELECT tenant_id, job_id FROM runs WHERE finished_at IS NULL AND sla_at <= (SELECT now FROM clock)
        ORDER BY sla_at LIMIT $1
    ) AS open
    UNION ALL
    SELECT tenant_id, job_id FROM expected
    WHERE NOT kept AND NOT open AND sla_at > (SELECT now FROM clock) - interval '1 minute'
)
SELECT 'time' AS condition, NULL::int AS tenant_id, '' AS key, extract(epoch FROM now)::float8 AS value,
       NULL::bigint AS n, NULL::text AS about
FROM clock
UNION ALL
SELECT 'process', NULL, name, 0, NULL, figures::text FROM measurements
WHERE measured_at > (SELECT now FROM clock) - interval '30 seconds'
UNION ALL
SELECT 'queue_depth', w.tenant_id, w.queue, (
           SELECT count(*) FROM (
               SELECT FROM unnest(w.line_ids) AS l (line_id) JOIN executions e ON e.line_id = l.line_id
               WHERE e.state = 'queued' LIMIT $3
           ) AS counted
       )::float8, NULL, NULL
FROM waiting w
UNION ALL
SELECT 'success_ratio', tenant_id, '', count(*) FILTER (WHERE state = 'succeeded')::float8 / count(*), count(*), NULL
FROM sample GROUP BY tenant_id
UNION ALL
SELECT 'sla_ratio', tenant_id, '', count(*) FILTER (WHERE kept)::float8 / count(*), count(*), NULL
FROM kept GROUP BY tenant_id
UNION ALL
SELECT 'run_sla_ratio', tenant_id, '', count(*) FILTER (WHERE kept)::float8 / count(*), count(*), NULL
FROM expected GROUP BY tenant_id
UNION ALL
SELECT 'run_sla', l.tenant_id, j.name, count(*), count(*), NULL
FROM late l JOIN jobs j USING (job_id) GROUP BY l.tenant_id, j.name
UNION ALL
SELECT 'start_by', h.tenant_id, j.name, count(*), count(*), NULL
FROM (
    SELECT tenant_id, job_id FROM history
    WHERE state = 'skipped' AND reason = 'start_by' AND finished_at >= (SELECT now FROM clock) - interval '10 minutes'
    ORDER BY finished_at DESC LIMIT $1
) AS h JOIN jobs j USING (job_id)
GROUP BY h.tenant_id, j.name
UNION ALL
SELECT 'schedule_too_costly', tenant_id, name, 1, NULL, NULL
FROM (
    SELECT tenant_id, name FROM jobs WHERE deleted_at IS NULL AND pause_reason LIKE 'schedule too costly:%' LIMIT $2
) AS paused
UNION ALL
SELECT 'shard_heartbeat', NULL, '', extract(epoch FROM max(seen.age))::float8,
       count(*) FILTER (WHERE seen.age > interval '5 seconds'), string_agg(DISTINCT seen.owner, ', ')
           FILTER (WHERE seen.age > interval '5 seconds')
FROM shards s LEFT JOIN schedulers o ON o.scheduler_id = s.owner
CROSS JOIN LATERAL (
    SELECT (SELECT now FROM clock) - coalesce(o.seen_at, s.watermark) AS age, coalesce(o.name, 'none') AS owner
) AS seen
UNION ALL
SELECT 'channel_failing', tenant_id, name, extract(epoch FROM (SELECT now FROM clock) - failing_since)::float8, NULL,
       last_error
FROM channels WHERE failing_since IS NOT NULL AND disabled_at IS NULL
UNION ALL
SELECT 'topic_lag', t.tenant_id, t.name, w.lag, NULL, w.error
FROM triggers t JOIN trigger_watches w USING (trigger_id)
WHERE t.kind = 'topic' AND t.paused_at IS NULL AND w.lag IS NOT NULL
UNION ALL
SELECT 'dead_letters', t.tenant_id, '', d.n, d.n, NULL FROM tenants t CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM dead_letters WHERE tenant_id = t.tenant_id AND state = 'open' AND run_id IS NULL LIMIT $3
    ) AS counted
) AS d
WHERE d.n > 0
UNION ALL
SELECT 'output_quota', t.tenant_id, '', o.bytes::float8 / greatest(t.output_per_day, 1), o.bytes, NULL
FROM tenants t JOIN tenant_output o
  ON o.tenant_id = t.tenant_id AND o.day = ((SELECT now FROM clock) AT TIME ZONE 'UTC')::date
WHERE t.output_per_day IS NOT NULL
UNION ALL
SELECT 'watched', t.tenant_id, '', 0, NULL, NULL FROM tenants t
WHERE EXISTS (
    SELECT FROM jobs j WHERE j.tenant_id = t.tenant_id AND (j.finish_by_s IS NOT NULL OR j.max_gap_s IS NOT NULL)
      AND j.deleted_at IS NULL AND j.paused_at IS NULL
);

-- name: durations
-- Percentiles of the latest 20 successes of recently active jobs, and of the 180 before. $1: the lowest id of the last
-- hour, $2: the job to continue after, $3: maximum jobs, $4: executions read to find them.
WITH active AS (
    SELECT job_id FROM (
        SELECT job_id FROM history
        WHERE execution_id >= $1 AND finished_at >= (SELECT db_now()) - interval '1 hour'
        ORDER BY execution_id DESC LIMIT $4
    ) AS lately
    WHERE job_id > $2 GROUP BY job_id ORDER BY job_id LIMIT $3
)
SELECT a.job_id, j.tenant_id, j.name, now.n AS n, before.n AS n_before, now.p AS p, before.p AS p_before
FROM active a JOIN jobs j USING (job_id)
CROSS JOIN LATERAL (
    SELECT (array_agg(duration_ms ORDER BY execution_id DESC))[:200] AS ms FROM (
        SELECT duration_ms, execution_id, state FROM history WHERE job_id = a.job_id
        ORDER BY execution_id DESC LIMIT 400
    ) AS last
    WHERE state = 'succeeded' AND duration_ms IS NOT NULL
) AS last
CROSS JOIN LATERAL (
    SELECT count(*) AS n, percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ms) AS p
    FROM unnest(last.ms[:20]) AS ms
) AS now
CROSS JOIN LATERAL (
    SELECT count(*) AS n, percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY ms) AS p
    FROM unnest(last.ms[21:]) AS ms
) AS before;
