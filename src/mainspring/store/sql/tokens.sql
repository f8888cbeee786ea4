-- name: insert_token
-- Adds a token; only its digest is kept.
INSERT INTO tokens (token_id, tenant_id, name, digest, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6);

-- name: token_by_digest
-- Finds the valid token behind a credential.
SELECT token_id, tenant_id, name, scopes, (SELECT t.name FROM tenants t WHERE t.tenant_id = tokens.tenant_id) AS tenant
FROM tokens
WHERE digest = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > db_now());

-- name: token_by_id
-- Finds a valid token behind a browser session, so that revoking it ends the session too.
SELECT token_id, tenant_id, name, scopes, (SELECT t.name FROM tenants t WHERE t.tenant_id = tokens.tenant_id) AS tenant
FROM tokens
WHERE token_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > db_now());

-- name: has_tokens
-- Tells a first start from a later one.
SELECT EXISTS (SELECT FROM tokens WHERE revoked_at IS NULL);

-- name: revoke_tokens_named
-- Ends tokens by name, at once.
UPDATE tokens SET revoked_at = db_now() WHERE tenant_id = $1 AND name = $2 AND revoked_at IS NULL;

-- name: server_key
-- A key made at the first start.
SELECT key FROM server_keys WHERE name = $1;

-- name: list_tokens
-- A tenant's tokens that are not revoked, newest first.
SELECT token_id, name, scopes, created_at, expires_at, coalesce(expires_at <= db_now(), false) AS expired
FROM tokens WHERE tenant_id = $1 AND revoked_at IS NULL ORDER BY created_at DESC, token_id LIMIT $2;

-- name: revoke_token
-- Ends a token at once, and every browser session that began with it.
UPDATE tokens SET revoked_at = db_now() WHERE token_id = $1 AND tenant_id = $2 AND revoked_at IS NULL RETURNING name;
