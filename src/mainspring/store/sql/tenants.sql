-- part: tenant_columns
t.tenant_id, t.name, t.created_at, t.weight, t.cap, t.min_isolation, t.suspended_at, t.suspend_reason, t.max_jobs,
       t.max_queued, t.schedules_per_hour, t.min_interval_s, t.end_required, t.output_per_day, t.keep_history_s

-- name: insert_tenant
-- Adds a tenant.
INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id;

-- name: list_tenants
-- A page of tenants by name, after a name.
SELECT <<tenant_columns>> FROM tenants t WHERE t.deleted_at IS NULL AND t.name > $1 ORDER BY t.name LIMIT $2;

-- name: tenant_by_name
-- A tenant by name.
SELECT <<tenant_columns>> FROM tenants t WHERE t.deleted_at IS NULL AND t.name = $1;

-- name: tenant_name
-- The name of a tenant.
SELECT name FROM tenants WHERE tenant_id = $1;

-- name: lock_tenant_row
-- A tenant by id, with its row locked: what counts against its quotas is added one transaction after the other.
SELECT <<tenant_columns>> FROM tenants t WHERE t.tenant_id = $1 FOR NO KEY UPDATE;

-- name: share_tenant
-- Whether a tenant is suspended. Its row is locked against a suspension, not against others that share it.
SELECT suspended_at IS NOT NULL FROM tenants WHERE tenant_id = $1 FOR SHARE;

-- name: limits_queue
-- Whether a tenant has a quota of executions that have not started.
SELECT max_queued IS NOT NULL FROM tenants WHERE tenant_id = $1;

-- name: tenant_quotas
-- The quotas of a tenant on definitions.
SELECT max_jobs, min_interval_s, end_required FROM tenants WHERE tenant_id = $1;

-- name: update_tenant
-- Writes the settings of a tenant.
UPDATE tenants SET weight = $2, cap = $3, max_jobs = $4, max_queued = $5, schedules_per_hour = $6, min_interval_s = $7,
    end_required = $8, output_per_day = $9, keep_history_s = $10
WHERE tenant_id = $1 AND deleted_at IS NULL;

-- name: suspend_tenant
-- Suspends a tenant, if it is not.
UPDATE tenants SET suspended_at = db_now(), suspend_reason = $2
WHERE tenant_id = $1 AND suspended_at IS NULL AND deleted_at IS NULL RETURNING suspended_at;

-- name: unsuspend_tenant
-- Ends the suspension of a tenant.
UPDATE tenants SET suspended_at = NULL, suspend_reason = NULL
WHERE tenant_id = $1 AND suspended_at IS NOT NULL AND deleted_at IS NULL RETURNING tenant_id;

-- name: delete_tenant
-- Marks a suspended tenant without running executions as deleted, revokes its tokens, and frees its name.
WITH gone AS (
    UPDATE tenants SET deleted_at = db_now(), name = left(name, 100) || ' [deleted ' || tenant_id || ']'
    WHERE tenant_id = $1 AND suspended_at IS NOT NULL AND deleted_at IS NULL
      AND NOT EXISTS (SELECT FROM executions e WHERE e.tenant_id = $1 AND e.session_id IS NOT NULL)
    RETURNING tenant_id
)
UPDATE tokens k SET revoked_at = db_now() FROM gone WHERE k.tenant_id = gone.tenant_id AND k.revoked_at IS NULL
RETURNING k.token_id;

-- name: tenant_is_deleted
-- Whether a tenant was deleted.
SELECT deleted_at IS NOT NULL FROM tenants WHERE tenant_id = $1;

-- name: valid_tokens_of_tenant
-- Ids of the tokens of a tenant that are not revoked.
SELECT token_id FROM tokens WHERE tenant_id = $1 AND revoked_at IS NULL;

-- name: suspended_tenants
-- Tenants of which nothing may start; dispatchers cache them.
SELECT tenant_id FROM tenants WHERE suspended_at IS NOT NULL;

-- name: count_jobs
-- Jobs of a tenant, and workflows, that are not deleted.
SELECT count(*) FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL;

-- name: count_pending
-- Executions of a tenant that have not started; counts up to $2.
SELECT count(*) FROM (
    SELECT FROM executions WHERE tenant_id = $1 AND state IN ('waiting', 'blocked', 'queued') LIMIT $2
) AS pending;

-- name: firing_jobs
-- Jobs of a tenant that would fire: not paused, with a schedule or a one-time fire that waits.
SELECT job_id FROM jobs j
WHERE tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NULL
  AND (schedule_id IS NOT NULL
       OR EXISTS (SELECT FROM executions e WHERE e.job_id = j.job_id AND e.trigger = 'fire' AND e.state = 'waiting'))
ORDER BY job_id LIMIT $2;

-- name: jobs_paused_for
-- Jobs of a tenant that were paused for a reason.
SELECT job_id FROM jobs WHERE tenant_id = $1 AND deleted_at IS NULL AND paused_at IS NOT NULL AND pause_reason = $2
ORDER BY job_id LIMIT $3;

-- name: tenant_loads
-- Running and queued executions of these tenants.
SELECT tenant_id, count(*) FILTER (WHERE session_id IS NOT NULL) AS running,
       count(*) FILTER (WHERE state = 'queued') AS waiting
FROM executions WHERE session_id IS NOT NULL OR state = 'queued' GROUP BY tenant_id;
