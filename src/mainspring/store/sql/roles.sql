-- name: list_roles
-- The roles that a tenant defines.
SELECT name, scopes, description, created_at, created_by FROM roles WHERE tenant_id = $1 ORDER BY name LIMIT $2;

-- name: role_by_name
-- A role that a tenant defines, locked against a concurrent change.
SELECT name, scopes, description, created_at, created_by FROM roles WHERE tenant_id = $1 AND name = $2 FOR SHARE;

-- name: write_role
-- Defines a role, or changes it.
INSERT INTO roles (tenant_id, name, scopes, description, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant_id, name) DO UPDATE SET scopes = excluded.scopes, description = excluded.description
RETURNING name, scopes, description, created_at, created_by;

-- name: count_roles
-- How many roles a tenant defines.
SELECT count(*) FROM roles WHERE tenant_id = $1;

-- name: role_is_used
-- Whether a user or a valid token has the role.
SELECT EXISTS (SELECT FROM principals WHERE tenant_id = $1 AND role = $2 AND deleted_at IS NULL)
    OR EXISTS (SELECT FROM tokens WHERE tenant_id = $1 AND role = $2 AND revoked_at IS NULL);

-- name: delete_role
-- Deletes a role that a tenant defines.
DELETE FROM roles WHERE tenant_id = $1 AND name = $2 RETURNING name;
