-- name: upsert_queue
-- Writes a queue's settings.
INSERT INTO queues (tenant_id, name, cap, lease_s, patience_s, placement, may_help, paused_at, updated_by, max_duration_s,
                    min_isolation)
VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $8 THEN db_now() END, $9, $10, $11)
ON CONFLICT (tenant_id, name) DO UPDATE
SET cap = $3, lease_s = $4, patience_s = $5, placement = $6, may_help = $7, max_duration_s = $10,
    min_isolation = $11,
    paused_at = CASE WHEN $8 THEN coalesce(queues.paused_at, db_now()) END, updated_at = db_now(), updated_by = $9;

-- name: queue_settings
-- The settings of a tenant's queues; a queue with default settings has no row.
SELECT name, cap, lease_s, patience_s, placement, may_help, paused_at, max_duration_s, min_isolation FROM queues
WHERE tenant_id = $1 ORDER BY name;

-- name: lock_queue
-- One queue's settings, locked until the end of the transaction.
SELECT name, cap, lease_s, patience_s, placement, may_help, paused_at, max_duration_s, min_isolation FROM queues
WHERE tenant_id = $1 AND name = $2 FOR UPDATE;

-- name: all_queue_settings
-- The queue settings of every tenant; dispatchers cache them.
SELECT tenant_id, name, cap, lease_s, patience_s, placement, may_help, paused_at, max_duration_s, min_isolation
FROM queues;

-- name: tenant_shares
-- Weight and cap of tenants that are not the defaults; dispatchers cache them.
SELECT tenant_id, weight, cap FROM tenants WHERE weight <> 1 OR cap IS NOT NULL;

-- name: tenant_isolations
-- The minimum isolation of tenants that have one; dispatchers cache them.
SELECT tenant_id, min_isolation FROM tenants WHERE min_isolation <> 'none';

-- name: min_isolation
-- The minimum isolation of a queue and of its tenant.
SELECT t.min_isolation AS of_tenant, coalesce(q.min_isolation, 'none') AS of_queue
FROM tenants t LEFT JOIN queues q ON q.tenant_id = t.tenant_id AND q.name = $2
WHERE t.tenant_id = $1;

-- name: set_tenant_isolation
-- Writes a tenant's minimum isolation; returns the one before.
UPDATE tenants t SET min_isolation = $2 FROM (SELECT min_isolation FROM tenants WHERE tenant_id = $1 FOR UPDATE) AS old
WHERE t.tenant_id = $1 RETURNING old.min_isolation;

-- name: set_tenant_share
-- Writes a tenant's weight and cap.
UPDATE tenants SET weight = $2, cap = $3 WHERE tenant_id = $1;

-- name: lock_queue_caps
-- Locks the queues with a cap, in order, before the count, so that only one transaction counts at a time.
SELECT q.tenant_id, q.name, q.cap FROM queues q
JOIN unnest($1::int[], $2::text[]) AS w (tenant_id, name) ON q.tenant_id = w.tenant_id AND q.name = w.name COLLATE "C"
WHERE q.cap IS NOT NULL ORDER BY q.tenant_id, q.name FOR NO KEY UPDATE OF q;

-- name: lock_tenant_caps
-- Locks the tenants with a cap, as lock_queue_caps does for queues.
SELECT tenant_id, cap FROM tenants WHERE tenant_id = ANY ($1::int[]) AND cap IS NOT NULL
ORDER BY tenant_id FOR NO KEY UPDATE;

-- name: count_running
-- Running executions of these tenants, by queue. Reads every running execution: at most as many as there are slots.
SELECT tenant_id, queue, count(*) AS n FROM executions
WHERE session_id IS NOT NULL AND tenant_id = ANY ($1::int[]) GROUP BY tenant_id, queue;

-- name: line_depths
-- Depth of each non-empty line of a tenant by priority: counts its first $2 executions, with the oldest of them.
WITH RECURSIVE <<nonempty_lines>>
SELECT l.line_id, l.queue, l.tenant_id, waits.priority, waits.n, waits.oldest_at, db_now() AS now
FROM found JOIN lines l USING (line_id)
CROSS JOIN LATERAL (
    SELECT priority, count(*) AS n, min(queued_at) AS oldest_at FROM (
        SELECT priority, queued_at FROM executions
        WHERE state = 'queued' AND line_id = found.line_id ORDER BY rank, execution_id LIMIT $2
    ) AS e
    GROUP BY priority
) AS waits
WHERE $1::int IS NULL OR l.tenant_id = $1;

-- name: queued_estimate
-- Estimated number of queued executions, as of the last vacuum or analyze.
SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'executions_line'::regclass;

-- name: limited_keys
-- The limit keys of a tenant in use now: with a holder, or with a queued execution.
SELECT DISTINCT limit_id FROM (
    SELECT limit_id FROM executions WHERE limit_id IS NOT NULL AND session_id IS NOT NULL AND tenant_id = $1
    UNION ALL
    SELECT unnest(ARRAY[nullif(l.limit_id, 0), nullif(l.rate_id, 0)]) FROM lines l
    WHERE l.tenant_id = $1 AND (l.limit_id > 0 OR l.rate_id > 0)
      AND EXISTS (SELECT FROM executions e WHERE e.state = 'queued' AND e.line_id = l.line_id)
) AS used WHERE limit_id IS NOT NULL LIMIT $2;

-- name: queue_flow
-- Executions that entered and that ended in each queue of a tenant in the last $4 seconds. Reads ids in [$2, $5), without
-- the executions of later times, and at most $3 rows; span_s is the time the rows read cover.
WITH clock AS (SELECT db_now() AS now), recent AS (
    (SELECT execution_id, queue, queued_at, finished_at FROM history
     WHERE tenant_id = $1 AND execution_id >= $2
       AND finished_at >= (SELECT db_now()) - make_interval(secs => $4)
     ORDER BY execution_id DESC LIMIT $3)
    UNION ALL
    (SELECT execution_id, queue, queued_at, NULL FROM executions
     WHERE tenant_id = $1 AND execution_id >= $2 AND execution_id < $5 AND queued_at IS NOT NULL
     ORDER BY execution_id DESC LIMIT $3)
)
SELECT queue, count(*) FILTER (WHERE queued_at >= now - make_interval(secs => $4)) AS entered,
       count(finished_at) AS left_it, count(*) >= $3 AS bounded,
       extract(epoch FROM now - min(coalesce(queued_at, finished_at)))::float8 AS span_s
FROM recent CROSS JOIN clock GROUP BY queue, now;
