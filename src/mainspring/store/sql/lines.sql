-- name: touch_lines
-- Inserts missing lines and keeps `used_at` of the others recent.
INSERT INTO lines (tenant_id, queue, demand, limit_id, rate_id)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[])
ON CONFLICT (tenant_id, queue, demand, limit_id, rate_id) DO UPDATE SET used_at = db_now()
WHERE lines.used_at < db_now() - interval '1 day';

-- name: find_lines
-- Ids of lines by content, in the order asked.
SELECT l.line_id, w.n FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[])
    WITH ORDINALITY AS w (queue, demand, limit_id, rate_id, n)
JOIN lines l ON l.tenant_id = $1 AND l.queue = w.queue COLLATE "C" AND l.demand = w.demand COLLATE "C"
 AND l.limit_id = w.limit_id AND l.rate_id = w.rate_id
ORDER BY w.n;

-- name: lines_by_id
-- Lines by id, for dispatchers.
SELECT line_id, tenant_id, queue, demand, limit_id, rate_id FROM lines WHERE line_id = ANY ($1::int[]);

-- name: touch_limits
-- Inserts keys, or overwrites their limit; the last writer wins. Returns the written ones.
INSERT INTO limits (tenant_id, kind, key, most, per_s, burst)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::int[], $5::float8[], $6::int[])
ON CONFLICT (tenant_id, kind, key) DO UPDATE
SET most = EXCLUDED.most, per_s = EXCLUDED.per_s, burst = EXCLUDED.burst, used_at = db_now()
WHERE (limits.most, limits.per_s, limits.burst) IS DISTINCT FROM (EXCLUDED.most, EXCLUDED.per_s, EXCLUDED.burst)
   OR limits.used_at < db_now() - interval '1 day'
RETURNING limit_id;

-- name: find_limits
-- Ids of keys by name, in the order asked.
SELECT l.limit_id, w.n FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w (kind, key, n)
JOIN limits l ON l.tenant_id = $1 AND l.kind = w.kind AND l.key = w.key COLLATE "C"
ORDER BY w.n;

-- name: lock_limits
-- First statement of a claim under limits: locks the keys, in order, so that only one transaction counts at a time.
SELECT limit_id, most, per_s, burst, next_at, db_now() AS now FROM limits
WHERE limit_id = ANY ($1::bigint[]) ORDER BY limit_id FOR NO KEY UPDATE;

-- name: count_holders
-- Slots taken of each key. Only running executions hold slots.
SELECT w.limit_id, (
    SELECT count(*) FROM executions e WHERE e.limit_id = w.limit_id AND e.session_id IS NOT NULL
) AS n
FROM unnest($1::bigint[]) AS w (limit_id);

-- name: limit_of_execution
-- The concurrency key that a live execution counts against.
SELECT m.limit_id, m.key FROM executions e JOIN limits m USING (limit_id)
WHERE e.execution_id = $1 AND e.tenant_id = $2;

-- name: advance_rates
-- Stores when each of these rate keys allows the next start.
UPDATE limits l SET next_at = w.next_at FROM unnest($1::bigint[], $2::timestamptz[]) AS w (limit_id, next_at)
WHERE l.limit_id = w.limit_id;

-- name: limit_holders
-- Keys with the executions that hold their slots.
SELECT l.limit_id, l.kind, l.key, l.most, l.per_s, l.next_at, e.execution_id, e.started_at, j.name AS job_name
FROM limits l
LEFT JOIN executions e ON e.limit_id = l.limit_id AND e.session_id IS NOT NULL
LEFT JOIN jobs j USING (job_id)
WHERE l.tenant_id = $1 AND l.limit_id = ANY ($2::bigint[]) ORDER BY l.limit_id, e.execution_id LIMIT 200;

-- name: forget_lines
-- Deletes lines unused for a week: keys built from params would accumulate without bound.
DELETE FROM lines l
WHERE l.used_at < db_now() - interval '7 days'
  AND NOT EXISTS (SELECT FROM jobs j WHERE j.line_id = l.line_id)
  AND NOT EXISTS (SELECT FROM workflow_steps w WHERE w.line_id = l.line_id)
  AND NOT EXISTS (SELECT FROM executions e WHERE e.line_id = l.line_id);

-- name: forget_limits
-- Deletes keys without a line.
DELETE FROM limits k
WHERE k.used_at < db_now() - interval '7 days' AND coalesce(k.next_at, '-infinity') < db_now()
  AND NOT EXISTS (SELECT FROM lines l WHERE k.limit_id IN (l.limit_id, l.rate_id));
