-- name: ensure_identity
-- Adds a user that an issuer knows, or updates its role, name and groups, unless it is blocked; then adds the token that
-- stands for it in one role. Returns whether the user is new; nothing if it is blocked.
WITH principal AS (
    INSERT INTO principals AS p (principal_id, tenant_id, kind, name, display_name, role, issuer, subject, created_by,
                                 groups)
    VALUES ($1, $2, 'user', $3, $4, $5, $6, $7, $8, $12)
    ON CONFLICT (principal_id) DO UPDATE SET role = excluded.role, display_name = excluded.display_name,
        groups = excluded.groups
    WHERE p.tenant_id = excluded.tenant_id AND p.blocked_at IS NULL AND p.deleted_at IS NULL
    RETURNING p.principal_id, p.tenant_id, p.role, p.xmax = 0 AS added
), token AS (
    INSERT INTO tokens (token_id, tenant_id, name, digest, scopes, role, principal_id, created_by)
    SELECT $9, tenant_id, $10, $11, '{}', role, principal_id, $8 FROM principal
    ON CONFLICT (digest) DO NOTHING
)
SELECT added FROM principal;

-- name: block_principal
-- Blocks a user that an issuer knows.
UPDATE principals SET blocked_at = db_now()
WHERE principal_id = $1 AND tenant_id = $2 AND issuer IS NOT NULL AND deleted_at IS NULL AND blocked_at IS NULL
RETURNING blocked_at;

-- name: unblock_principal
-- Admits a blocked user again, with the tokens that stand for it.
WITH admitted AS (
    UPDATE principals SET blocked_at = NULL
    WHERE principal_id = $1 AND tenant_id = $2 AND issuer IS NOT NULL AND deleted_at IS NULL AND blocked_at IS NOT NULL
    RETURNING principal_id
), restored AS (
    UPDATE tokens t SET revoked_at = NULL FROM admitted a
    WHERE t.principal_id = a.principal_id AND t.tenant_id = $2 AND t.revoked_at IS NOT NULL
)
SELECT principal_id FROM admitted;

-- name: use_sign_in
-- Marks a sign-in as completed for the $2 seconds in which it could be repeated. Returns nothing if it was completed.
WITH expired AS (
    DELETE FROM used_sign_ins WHERE expires_at < db_now()
)
INSERT INTO used_sign_ins (digest, expires_at) VALUES ($1, db_now() + make_interval(secs => $2))
ON CONFLICT (digest) DO NOTHING RETURNING digest;
