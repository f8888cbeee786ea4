-- name: lock_tenant
-- Whoever changes what jobs of a tenant need holds this, so that no two changes make a cycle together.
SELECT tenant_id FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE;

-- name: way_between
-- The names from one job to another along what jobs need, if there is a way.
WITH RECURSIVE ways AS (
    SELECT n.child_id, ARRAY[p.name, c.name] AS names
    FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id JOIN jobs c ON c.job_id = n.child_id
    WHERE n.tenant_id = $1 AND n.parent_id = $2
    UNION ALL
    SELECT n.child_id, w.names || c.name
    FROM ways w JOIN job_needs n ON n.parent_id = w.child_id JOIN jobs c ON c.job_id = n.child_id
    WHERE n.tenant_id = $1 AND cardinality(w.names) < 1000
)
SELECT names FROM ways WHERE child_id = $3 LIMIT 1;

-- name: insert_need
-- A job needs another from now on.
INSERT INTO job_needs (child_id, parent_id, tenant_id, timeout_s, created_by) VALUES ($1, $2, $3, $4, $5)
RETURNING pg_notify('mainspring_runs', 'needs');

-- name: delete_need
-- A job does not need another any more.
DELETE FROM job_needs WHERE child_id = $1 AND parent_id = $2 AND tenant_id = $3 RETURNING parent_id;

-- name: needs_of
-- What a job needs, with the latest end of each since it was last executed.
SELECT p.name, n.*, s.finished_at AS succeeded_at, l.state AS last_state,
       s.finished_at IS NOT NULL AND n.timeout_s IS NOT NULL
           AND s.finished_at < db_now() - make_interval(secs => n.timeout_s) AS stale
FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id
LEFT JOIN LATERAL (
    SELECT finished_at FROM history h
    WHERE h.job_id = n.parent_id AND h.finished_at > n.since_at AND h.state = 'succeeded'
    ORDER BY h.execution_id DESC LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT state FROM history h WHERE h.job_id = n.parent_id AND h.finished_at > n.since_at AND h.state <> 'skipped'
    ORDER BY h.execution_id DESC LIMIT 1
) AS l ON true
WHERE n.child_id = $1 AND n.tenant_id = $2 ORDER BY p.name;

-- name: related_needs
-- Everything that hangs together with a job, by name.
WITH RECURSIVE near AS (
    SELECT $1::uuid AS job_id
    UNION
    SELECT CASE WHEN n.child_id = near.job_id THEN n.parent_id ELSE n.child_id END
    FROM near JOIN job_needs n ON near.job_id IN (n.child_id, n.parent_id) WHERE n.tenant_id = $2
)
SELECT c.name AS child, p.name AS parent
FROM job_needs n JOIN jobs c ON c.job_id = n.child_id JOIN jobs p ON p.job_id = n.parent_id
WHERE n.tenant_id = $2 AND n.child_id IN (SELECT job_id FROM near) ORDER BY c.name, p.name LIMIT 10000;

-- name: ready_children
-- Jobs all of whose needs are met since they were last executed; of one child, or of all ($1 null).
SELECT n.child_id, n.tenant_id, array_agg(p.name ORDER BY p.name) AS parents,
       array_agg(p.name ORDER BY p.name) FILTER (WHERE s.finished_at IS NULL AND n.freed_as = 'skipped') AS not_run
FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id
JOIN jobs c ON c.job_id = n.child_id AND c.deleted_at IS NULL AND c.paused_at IS NULL
LEFT JOIN LATERAL (
    SELECT finished_at FROM history h
    WHERE h.job_id = n.parent_id AND h.finished_at > n.since_at AND h.state = 'succeeded'
      AND (n.timeout_s IS NULL OR h.finished_at >= (SELECT db_now()) - make_interval(secs => n.timeout_s))
    ORDER BY h.execution_id DESC LIMIT 1
) AS s ON true
WHERE $1::uuid IS NULL OR n.child_id = $1
GROUP BY n.child_id, n.tenant_id HAVING bool_and(s.finished_at IS NOT NULL OR coalesce(n.freed_at > n.since_at, false))
LIMIT $2;

-- name: use_up_needs
-- A job is executed: what met its needs does not count again.
UPDATE job_needs SET since_at = db_now() WHERE child_id = $1 AND tenant_id = $2;

-- name: free_needs
-- A person lets go the jobs that need this one, without its success.
UPDATE job_needs SET freed_at = db_now(), freed_as = $3, freed_by = $4, reason = $5
WHERE parent_id = $1 AND tenant_id = $2
RETURNING child_id, pg_notify('mainspring_runs', 'needs');

-- name: has_needs
-- Whether any job needs another at all.
SELECT EXISTS (SELECT FROM job_needs);
