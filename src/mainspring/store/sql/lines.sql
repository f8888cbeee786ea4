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

-- part: names_no_function
-- A line of Python tasks that an older version wrote.
(l.demand = '{"kind":"python"}' OR l.demand LIKE '{"kind":"python",%')

-- name: jobs_without_function
-- Python jobs in lines that name no function, after a job id.
SELECT j.job_id, j.tenant_id, j.line_id, v.spec
FROM lines l JOIN jobs j USING (line_id) JOIN job_versions v ON v.job_id = j.job_id AND v.version = j.version
WHERE <<names_no_function>> AND j.deleted_at IS NULL AND j.job_id > $1 ORDER BY j.job_id LIMIT $2;

-- name: steps_without_function
-- Python steps in lines that name no function, after a step.
SELECT w.job_id, w.version, w.step, w.tenant_id, w.steps_id, w.line_id, v.spec
FROM lines l JOIN workflow_steps w USING (line_id)
JOIN job_versions v ON v.job_id = w.steps_id AND v.version = w.definition
WHERE <<names_no_function>> AND (w.job_id, w.version, w.step) > ($1, $2, $3)
ORDER BY w.job_id, w.version, w.step LIMIT $4;

-- name: move_jobs
-- Moves jobs from one line to another, unless they were edited meanwhile. Executions that exist stay where they are.
UPDATE jobs j SET line_id = w.new_id
FROM unnest($2::uuid[], $3::int[], $4::int[]) AS w (job_id, old_id, new_id)
WHERE j.job_id = w.job_id AND j.tenant_id = $1 AND j.line_id = w.old_id;

-- name: move_steps
-- Moves steps from one line to another.
UPDATE workflow_steps s SET line_id = w.new_id
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::int[]) AS w (job_id, version, step, old_id, new_id)
WHERE s.job_id = w.job_id AND s.version = w.version AND s.step = w.step AND s.tenant_id = $1 AND s.line_id = w.old_id;

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
