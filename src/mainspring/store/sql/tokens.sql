-- part: valid_token
t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > db_now())

-- part: token_columns
t.token_id, t.tenant_id, t.name, t.scopes, t.schedule_quota, t.queues, t.labels, t.kinds, t.role, t.principal_id,
       t.delegated_by, t.issuers, t.issued_by,
       (SELECT n.name FROM tenants n WHERE n.tenant_id = t.tenant_id) AS tenant,
       (SELECT n.suspended_at IS NOT NULL FROM tenants n WHERE n.tenant_id = t.tenant_id) AS suspended,
       (SELECT n.max_queued IS NOT NULL FROM tenants n WHERE n.tenant_id = t.tenant_id) AS queue_is_limited,
       (SELECT n.schedules_per_hour FROM tenants n WHERE n.tenant_id = t.tenant_id) AS schedules_per_hour,
       (SELECT r.scopes FROM roles r WHERE r.tenant_id = t.tenant_id AND r.name = t.role) AS role_scopes,
       (SELECT p.name FROM principals p WHERE p.principal_id = t.principal_id) AS user_name,
       (SELECT p.groups FROM principals p WHERE p.principal_id = t.principal_id) AS groups,
       (SELECT p.role FROM principals p WHERE p.principal_id = t.principal_id AND p.issuer IS NULL) AS user_role,
       (SELECT r.scopes FROM principals p JOIN roles r ON r.tenant_id = p.tenant_id AND r.name = p.role
        WHERE p.principal_id = t.principal_id) AS user_role_scopes,
       coalesce(t.last_used_at < db_now() - interval '1 min', true) AS unused,
       extract(epoch FROM t.expires_at - db_now())::float8 AS left_s

-- name: insert_token
-- Adds a token; only its digest is kept.
INSERT INTO tokens (token_id, tenant_id, name, digest, scopes, expires_at, schedule_quota, queues, labels, kinds,
                    principal_id, role, created_by, delegated_by, issuers, issued_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16);

-- name: token_by_digest
-- Finds the valid token behind a credential.
SELECT <<token_columns>> FROM tokens t WHERE t.digest = $1 AND <<valid_token>>;

-- name: use_token
-- Records that a token is in use, at most once a minute.
UPDATE tokens SET last_used_at = db_now()
WHERE token_id = $1 AND coalesce(last_used_at < db_now() - interval '1 min', true);

-- name: replace_token
-- Lets a token that was rotated expire after $3 seconds, unless it does earlier, and names its successor.
UPDATE tokens t SET expires_at = least(t.expires_at, db_now() + make_interval(secs => $3)), replaced_by = $4
WHERE t.token_id = $1 AND t.tenant_id = $2 AND t.replaced_by IS NULL AND <<valid_token>>
RETURNING t.expires_at;

-- name: lock_token
-- A token that is not revoked, with its row locked.
SELECT <<token_columns>>, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.replaced_by,
       coalesce(t.expires_at <= db_now(), false) AS expired
FROM tokens t WHERE t.token_id = $1 AND t.tenant_id = $2 AND t.revoked_at IS NULL FOR UPDATE OF t;

-- name: revoke_tokens_of
-- Revokes every token of a user; returns their ids.
UPDATE tokens SET revoked_at = db_now() WHERE principal_id = $1 AND tenant_id = $2 AND revoked_at IS NULL
RETURNING token_id;

-- name: persons_of_tokens
-- The persons behind tokens, which are given by the first digits of their ids: who delegated a token, its user, or itself;
-- and who issued them.
SELECT DISTINCT coalesce(delegated_by, principal_id, token_id) AS person_id, issuers FROM tokens
WHERE tenant_id = $1 AND left(token_id::text, 8) = ANY ($2::text[]);

-- name: tokens_of_role
-- Tokens whose rights depend on a role: their own, or that of their user.
SELECT t.token_id FROM tokens t LEFT JOIN principals p USING (principal_id)
WHERE t.tenant_id = $1 AND t.revoked_at IS NULL AND (t.role = $2 OR p.role = $2);

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
-- A tenant's tokens that are not revoked, newest first; optionally of one user, before ($3, $4).
SELECT <<token_columns>>, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.replaced_by,
       coalesce(t.expires_at <= db_now(), false) AS expired
FROM tokens t
WHERE t.tenant_id = $1 AND t.revoked_at IS NULL AND ($5::uuid IS NULL OR t.principal_id = $5)
  AND ($3::timestamptz IS NULL OR (t.created_at, t.token_id) < ($3, $4))
ORDER BY t.created_at DESC, t.token_id DESC LIMIT $2;

-- name: unbound_worker_tokens
-- Valid tokens for workers that were issued before tokens named what they grant.
SELECT name FROM tokens
WHERE tenant_id = $1 AND 'worker' = ANY (scopes) AND NOT 'admin' = ANY (scopes) AND queues IS NULL
  AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > db_now())
ORDER BY name LIMIT $2;

-- name: revoke_token
-- Revokes a token, and with it every browser session that was opened with it.
UPDATE tokens SET revoked_at = db_now() WHERE token_id = $1 AND tenant_id = $2 AND revoked_at IS NULL RETURNING name;

-- name: begin_grants
-- Inserts the grant row of a user or token before its first schedule.
INSERT INTO token_grants (token_id, tenant_id, began_at, granted) VALUES ($1, $2, db_now(), 0)
ON CONFLICT (token_id) DO NOTHING;

-- name: grant_schedules
-- Grants an eighth of what is left of $3 schedules per hour, at least one; 0 if none is left. An expired hour
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
