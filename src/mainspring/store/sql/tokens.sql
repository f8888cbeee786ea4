-- name: insert_token
-- Adds a token; only its digest is kept.
INSERT INTO tokens (token_id, tenant_id, name, digest, scopes, expires_at, schedule_quota)
VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: token_by_digest
-- Finds the valid token behind a credential.
SELECT token_id, tenant_id, name, scopes, schedule_quota,
       (SELECT t.name FROM tenants t WHERE t.tenant_id = tokens.tenant_id) AS tenant
FROM tokens
WHERE digest = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > db_now());

-- name: token_by_id
-- Finds a valid token behind a browser session, so that revoking it ends the session too.
SELECT token_id, tenant_id, name, scopes, schedule_quota,
       (SELECT t.name FROM tenants t WHERE t.tenant_id = tokens.tenant_id) AS tenant
FROM tokens
WHERE token_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > db_now());

-- name: has_tokens
-- Whether any valid token exists: false at the first start.
SELECT EXISTS (SELECT FROM tokens WHERE revoked_at IS NULL);

-- name: revoke_tokens_named
-- Revokes tokens by name.
UPDATE tokens SET revoked_at = db_now() WHERE tenant_id = $1 AND name = $2 AND revoked_at IS NULL;

-- name: server_key
-- A key created at the first start.
SELECT key FROM server_keys WHERE name = $1;

-- name: list_tokens
-- A tenant's tokens that are not revoked, newest first.
SELECT token_id, name, scopes, created_at, expires_at, coalesce(expires_at <= db_now(), false) AS expired
FROM tokens WHERE tenant_id = $1 AND revoked_at IS NULL ORDER BY created_at DESC, token_id LIMIT $2;

-- name: revoke_token
-- Revokes a token, and with it every browser session that was opened with it.
UPDATE tokens SET revoked_at = db_now() WHERE token_id = $1 AND tenant_id = $2 AND revoked_at IS NULL RETURNING name;

-- name: begin_grants
-- Inserts the grant row of a token before its first schedule.
INSERT INTO token_grants (token_id, tenant_id, began_at, granted) VALUES ($1, $2, db_now(), 0)
ON CONFLICT (token_id) DO NOTHING;

-- name: grant_schedules
-- Grants an eighth of what is left of a token's $3 schedules per hour, at least one; 0 if none is left. An expired hour
-- restarts.
WITH held AS MATERIALIZED (
    SELECT g.token_id, now.at, g.began_at + interval '1 hour' <= now.at AS over, g.began_at, g.granted
    FROM token_grants g CROSS JOIN (SELECT db_now()) AS now (at)
    WHERE g.token_id = $1 AND g.tenant_id = $2 FOR UPDATE OF g
), fresh AS (
    SELECT token_id, at, CASE WHEN over THEN at ELSE began_at END AS began_at, CASE WHEN over THEN 0 ELSE granted END AS used
    FROM held
), part AS (
    SELECT *, least(greatest($3::int - used, 0), greatest(1, ($3::int - used) / 8)) AS granted FROM fresh
)
UPDATE token_grants g SET began_at = p.began_at, granted = p.used + p.granted
FROM part p WHERE g.token_id = p.token_id
RETURNING p.granted, p.began_at + interval '1 hour' AS reset_at,
          extract(epoch FROM p.began_at + interval '1 hour' - p.at)::float8 AS left_s;
