-- name: lock_tenant
-- Locks a tenant. Every change of its job_needs does, so that no two changes form a cycle together.
SELECT tenant_id FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE;

-- name: path_between
-- The job names on a path from one job to another along job_needs, if there is one.
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
-- Makes a job need another.
INSERT INTO job_needs (child_id, parent_id, tenant_id, timeout_s, created_by, wait_s) VALUES ($1, $2, $3, $4, $5, $6);

-- name: write_needs
-- Makes jobs need others, or changes the limits of such needs. The caller has locked all needs of these jobs.
INSERT INTO job_needs AS n (child_id, parent_id, tenant_id, timeout_s, created_by, wait_s)
SELECT w.child_id, w.parent_id, $1, w.timeout_s, $2, w.wait_s
FROM unnest($3::uuid[], $4::uuid[], $5::float8[], $6::float8[]) AS w (child_id, parent_id, timeout_s, wait_s)
ON CONFLICT (child_id, parent_id) DO UPDATE SET timeout_s = excluded.timeout_s, wait_s = excluded.wait_s
WHERE n.tenant_id = $1;

-- name: delete_needs
-- Deletes needs. The caller has locked all needs of these jobs.
DELETE FROM job_needs n USING unnest($2::uuid[], $3::uuid[]) AS w (child_id, parent_id)
WHERE n.tenant_id = $1 AND n.child_id = w.child_id AND n.parent_id = w.parent_id
RETURNING n.child_id;

-- name: mark_all_needing
-- Updates the flags of jobs that may need others, which firing reads. The caller has locked the rows of their shards.
UPDATE jobs j SET needs = EXISTS (SELECT FROM job_needs n WHERE n.child_id = j.job_id), change = w.change
FROM unnest($2::uuid[], $3::bigint[]) AS w (job_id, change)
WHERE j.job_id = w.job_id AND j.tenant_id = $1 AND j.deleted_at IS NULL;

-- name: needs_of_jobs
-- What these jobs need, without jobs that are deleted.
SELECT n.child_id, p.name AS parent, n.timeout_s, n.wait_s
FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id AND p.deleted_at IS NULL
WHERE n.child_id = ANY ($2::uuid[]) AND n.tenant_id = $1 ORDER BY n.child_id, p.name;

-- name: needs_above
-- All needs of these jobs and of those that they need, directly or not, by name.
WITH RECURSIVE above AS (
    SELECT job_id FROM jobs WHERE tenant_id = $1 AND name = ANY ($2::text[]) AND deleted_at IS NULL
    UNION
    SELECT n.parent_id FROM above JOIN job_needs n ON n.child_id = above.job_id WHERE n.tenant_id = $1
)
SELECT c.name AS child, p.name AS parent
FROM above JOIN job_needs n ON n.child_id = above.job_id
JOIN jobs c ON c.job_id = n.child_id AND c.deleted_at IS NULL
JOIN jobs p ON p.job_id = n.parent_id AND p.deleted_at IS NULL
WHERE n.tenant_id = $1;

-- name: names_needing
-- Which of the jobs with these names need others.
SELECT name FROM jobs WHERE tenant_id = $1 AND name = ANY ($2::text[]) AND deleted_at IS NULL AND needs;

-- name: delete_need
-- Deletes a need. The caller has locked all needs of the job.
DELETE FROM job_needs WHERE child_id = $1 AND parent_id = $2 AND tenant_id = $3
RETURNING parent_id;

-- name: mark_needing
-- Updates the flag of a job that needs others, which firing reads. The caller has locked its shard's row (bump_shard).
UPDATE jobs SET needs = EXISTS (SELECT FROM job_needs n WHERE n.child_id = $1), change = $3
WHERE job_id = $1 AND tenant_id = $2 AND deleted_at IS NULL
RETURNING needs;

-- name: needs_of
-- What a job needs, with the latest end of each since the job was last executed.
SELECT p.name, p.deleted_at, n.*, s.finished_at AS succeeded_at, l.state AS last_state,
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
-- All needs connected with a job, by name.
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
-- Jobs without a schedule whose needs are all met since they were last executed; one child, or all ($1 null).
SELECT n.child_id, n.tenant_id, array_agg(p.name ORDER BY p.name) AS parents,
       array_agg(p.name ORDER BY p.name) FILTER (WHERE s.finished_at IS NULL AND n.freed_as = 'skipped') AS not_run
FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id
JOIN jobs c ON c.job_id = n.child_id AND c.deleted_at IS NULL AND c.paused_at IS NULL AND c.schedule_id IS NULL
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
-- Marks the successes that met a job's needs as used. The caller has locked the needs.
UPDATE job_needs SET since_at = db_now() WHERE child_id = $1 AND tenant_id = $2;

-- name: children_of
-- The jobs that need this one.
SELECT child_id FROM job_needs WHERE parent_id = $1 AND tenant_id = $2;

-- name: needing
-- The jobs that need this one and are not deleted, by id.
SELECT c.job_id, c.name, c.shard FROM job_needs n JOIN jobs c ON c.job_id = n.child_id AND c.deleted_at IS NULL
WHERE n.parent_id = $1 AND n.tenant_id = $2 ORDER BY c.job_id;

-- name: drop_needs
-- Deletes all needs of and for a deleted job. The caller has locked the needs of its children.
DELETE FROM job_needs WHERE (parent_id = $1 OR child_id = $1) AND tenant_id = $2
RETURNING child_id;

-- name: free_needs
-- Releases the jobs $6 that need this one without its success, at a user's request. The caller has locked their needs.
UPDATE job_needs SET freed_at = db_now(), freed_as = $3, freed_by = $4, reason = $5
WHERE parent_id = $1 AND tenant_id = $2 AND child_id = ANY ($6::uuid[])
RETURNING child_id;

-- name: has_needs
-- Whether any job needs another.
SELECT EXISTS (SELECT FROM job_needs);

-- name: needing_children
-- Jobs that need the job of an execution that has just succeeded, and whether they have a schedule.
SELECT DISTINCT n.child_id, c.schedule_id IS NOT NULL AS scheduled
FROM history h JOIN job_needs n ON n.parent_id = h.job_id
JOIN jobs c ON c.job_id = n.child_id
WHERE h.execution_id = ANY ($1::uuid[]) AND h.finished_at >= (SELECT db_now()) - interval '5 minutes'
  AND h.state = 'succeeded';

-- name: lock_needs
-- Locks all needs of these jobs, in this order everywhere, so that one transaction at a time evaluates them. The oldest
-- need of a job comes first: a transaction that holds it can also lock needs that were added since.
SELECT child_id FROM job_needs WHERE child_id = ANY ($1::uuid[]) ORDER BY child_id, created_at, parent_id FOR UPDATE;

-- name: note_waits
-- Records that a further fire waits. If the fire before it never ran, successes from before that fire no longer count.
-- The caller has locked the needs.
UPDATE job_needs n
SET fired_at = w.newest, since_at = greatest(n.since_at, CASE WHEN w.oldest > n.fired_at THEN n.fired_at END)
FROM (
    SELECT job_id, min(fire_at) AS oldest, max(fire_at) AS newest FROM executions
    WHERE job_id = ANY ($1::uuid[]) AND needs_by_at IS NOT NULL GROUP BY job_id
) AS w
WHERE n.child_id = w.job_id AND (n.fired_at IS NULL OR n.fired_at < w.newest);

-- name: release_met
-- Releases the oldest waiting execution of each job whose needs are all met, and uses them up. The caller has locked
-- the needs. A locked execution is skipped: its lock holder is ending it. With blackouts the execution stays waiting,
-- and the gate decides.
WITH met AS (
    SELECT c.child_id, e.execution_id, e.gated, (
        SELECT jsonb_agg(p.name ORDER BY p.name) FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id
        WHERE n.child_id = c.child_id AND n.freed_as = 'skipped' AND n.freed_at > n.since_at
    ) AS not_run
    FROM unnest($1::uuid[]) AS c (child_id)
    CROSS JOIN LATERAL (
        SELECT w.execution_id, EXISTS (
            SELECT FROM blackouts b
            WHERE b.tenant_id = w.tenant_id AND b.deleted_at IS NULL AND (b.end_at IS NULL OR b.end_at > db_now())
        ) AS gated
        FROM executions w WHERE w.job_id = c.child_id AND w.state = 'waiting' AND w.needs_by_at IS NOT NULL
        ORDER BY w.execution_id LIMIT 1 FOR UPDATE OF w SKIP LOCKED
    ) AS e
    WHERE NOT EXISTS (
        SELECT FROM job_needs n
        WHERE n.child_id = c.child_id AND NOT coalesce(n.freed_at > n.since_at, false) AND (
            SELECT 1 FROM history h
            WHERE h.job_id = n.parent_id AND h.finished_at > n.since_at AND h.state = 'succeeded'
              AND (n.timeout_s IS NULL OR h.finished_at >= (SELECT db_now()) - make_interval(secs => n.timeout_s))
            LIMIT 1
        ) IS NULL
    )
), used AS (
    UPDATE job_needs n SET since_at = db_now() FROM met WHERE n.child_id = met.child_id
)
UPDATE executions e
SET state = CASE WHEN met.gated THEN 'waiting' ELSE 'queued' END, due_at = now.at,
    queued_at = CASE WHEN NOT met.gated THEN now.at END, needs_by_at = NULL,
    params = CASE WHEN met.not_run IS NOT NULL AND v.spec -> 'params' ? $2
                  THEN coalesce(e.params, '{}') || jsonb_build_object($2, met.not_run) ELSE e.params END
FROM met, job_versions v, (SELECT db_now()) AS now (at)
WHERE e.execution_id = ANY (ARRAY[met.execution_id]) AND e.state = 'waiting' AND e.needs_by_at IS NOT NULL
  AND v.job_id = e.job_id AND v.version = e.version
RETURNING e.execution_id, e.state, e.line_id, e.rank, e.due_at;

-- name: waiting_children
-- Jobs with an execution that waits for their needs.
SELECT DISTINCT job_id FROM executions WHERE needs_by_at IS NOT NULL LIMIT $1;

-- name: skip_unmet
-- Skips executions that have waited too long for their needs, and names the unmet ones.
WITH due AS (
    SELECT execution_id FROM executions WHERE needs_by_at <= (SELECT db_now()) AND state = 'waiting'
    ORDER BY needs_by_at LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM executions e USING due
    WHERE e.execution_id = ANY (ARRAY[due.execution_id]) AND e.state = 'waiting' AND e.needs_by_at IS NOT NULL
    RETURNING e.*
), skipped AS (
    INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                         due_at, finished_at, reason, error, params, created_by, backfill_id)
    SELECT g.execution_id, g.job_id, g.tenant_id, g.version, g.priority, g.attempt, 'skipped', g.trigger, g.queue,
           g.fire_at, g.fire_at, db_now(), 'needs', 'not succeeded in time: ' || (
               SELECT string_agg(p.name, ', ' ORDER BY p.name) FROM job_needs n JOIN jobs p ON p.job_id = n.parent_id
               WHERE n.child_id = g.job_id AND NOT coalesce(n.freed_at > n.since_at, false) AND (
                   SELECT 1 FROM history h
                   WHERE h.job_id = n.parent_id AND h.finished_at > n.since_at AND h.state = 'succeeded'
                     AND (n.timeout_s IS NULL OR h.finished_at >= (SELECT db_now()) - make_interval(secs => n.timeout_s))
                   LIMIT 1
               ) IS NULL
           ), g.params, g.created_by, g.backfill_id
    FROM gone g
)
SELECT execution_id, CASE WHEN chained THEN job_id END AS chained FROM gone;
