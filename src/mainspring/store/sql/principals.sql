-- name: insert_principal
-- Adds a user or a service.
INSERT INTO principals (principal_id, tenant_id, kind, name, display_name, role, created_by, groups)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- part: principal_columns
p.principal_id, p.kind, p.name, p.display_name, p.role, p.created_at, p.created_by, p.issuer, p.blocked_at,
       p.groups,
       (SELECT count(*) FROM tokens t WHERE t.principal_id = p.principal_id AND t.revoked_at IS NULL
          AND (t.expires_at IS NULL OR t.expires_at > db_now())) AS tokens,
       (SELECT max(t.last_used_at) FROM tokens t WHERE t.principal_id = p.principal_id) AS last_used_at

-- name: list_principals
-- A page of a tenant's users and services by name, after a name.
SELECT <<principal_columns>> FROM principals p
WHERE p.tenant_id = $1 AND p.deleted_at IS NULL AND p.name > $2 ORDER BY p.name LIMIT $3;

-- name: lock_principal
-- A user or a service, with its row locked: its tokens are issued and its role is changed one after the other.
SELECT <<principal_columns>> FROM principals p
WHERE p.tenant_id = $1 AND p.name = $2 AND p.deleted_at IS NULL FOR UPDATE OF p;

-- name: update_principal
-- Changes display name, role and groups.
UPDATE principals SET display_name = $3, role = $4, groups = $5
WHERE principal_id = $1 AND tenant_id = $2 AND deleted_at IS NULL;

-- name: delete_principal
-- Marks a user or a service as deleted.
UPDATE principals SET deleted_at = db_now() WHERE principal_id = $1 AND tenant_id = $2 AND deleted_at IS NULL
RETURNING name;
