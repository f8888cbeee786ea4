-- Ready executions on their way to dispatchers through a queue engine, and the claim of those that arrived.

-- name: ready_executions
-- The first queued executions of several lines, for the queue engine; locks nothing. Arrays: line, position (rank, id),
-- limit.
SELECT l.line_id, c.execution_id, c.rank, c.job_id, n.name AS tenant, c.shard, c.priority, c.fire_at, c.params,
       v.spec -> 'task' AS task
FROM unnest($1::int[], $2::bigint[], $3::uuid[], $4::int[]) AS l (line_id, rank, execution_id, most)
CROSS JOIN LATERAL (
    SELECT * FROM executions
    WHERE state = 'queued' AND line_id = l.line_id AND (rank, execution_id) > (l.rank, l.execution_id)
    ORDER BY rank, execution_id LIMIT l.most
) AS c
JOIN job_versions v ON v.job_id = c.job_id AND v.version = c.version
JOIN tenants n ON n.tenant_id = c.tenant_id
ORDER BY c.rank, c.execution_id;

-- name: claim_ids
-- As `claim`, for the executions $4 that a queue engine has named. Line and tenant are checked: the engine's records decide
-- nothing. $6 is 'queued': with a constant the planner would scan the queue.
WITH <<live>>, chosen AS (
    SELECT locked.tid, row_number() OVER () AS slot
    FROM (
        SELECT e.ctid AS tid FROM unnest($4::uuid[]) WITH ORDINALITY AS w (execution_id, n)
        JOIN executions e ON e.execution_id = ANY (ARRAY[w.execution_id])
        WHERE e.state = $6::text AND e.line_id = $3 AND e.tenant_id = $5
          AND (e.start_by_at IS NULL OR e.attempt > 0 OR e.start_by_at > (SELECT db_now()))
          AND NOT EXISTS (SELECT FROM tenants WHERE tenant_id = $5 AND suspended_at IS NOT NULL)
        ORDER BY w.n LIMIT cardinality($2::smallint[])
        FOR UPDATE OF e SKIP LOCKED
    ) AS locked
)
<<start_chosen>>;
