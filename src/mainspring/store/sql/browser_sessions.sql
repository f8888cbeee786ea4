-- name: insert_login_link
-- Adds a login link of a token, valid for $4 seconds. Deletes expired links, and all but the newest $5 of the token.
WITH expired AS (
    DELETE FROM login_links WHERE expires_at < db_now()
), surplus AS (
    DELETE FROM login_links WHERE digest IN (
        SELECT digest FROM login_links WHERE token_id = $2 ORDER BY created_at DESC OFFSET $5)
)
INSERT INTO login_links (digest, token_id, tenant_id, expires_at)
VALUES ($1, $2, $3, db_now() + make_interval(secs => $4)) RETURNING expires_at;

-- name: login_link
-- The valid token behind a login link that has not been used.
SELECT <<token_columns>>
FROM login_links l JOIN tokens t USING (token_id)
WHERE l.digest = $1 AND l.expires_at > db_now() AND <<valid_token>>;

-- name: use_login_link
-- Deletes a login link and returns its token, if both are still valid: of two browsers, one gets it.
DELETE FROM login_links l USING tokens t
WHERE l.digest = $1 AND l.expires_at > db_now() AND t.token_id = l.token_id AND <<valid_token>>
RETURNING <<token_columns>>;

-- name: insert_browser_session
-- Adds a session for $5 seconds, if its token is valid. Deletes expired sessions, and all but the newest $8 of the token.
WITH expired AS (
    DELETE FROM browser_sessions WHERE expires_at < db_now()
), surplus AS (
    DELETE FROM browser_sessions WHERE session_id IN (
        SELECT session_id FROM browser_sessions WHERE token_id = $3 ORDER BY created_at DESC OFFSET $8)
)
INSERT INTO browser_sessions (session_id, digest, token_id, tenant_id, expires_at, address, user_agent)
SELECT $1, $2, t.token_id, t.tenant_id, db_now() + make_interval(secs => $5), $6, $7
FROM tokens t WHERE t.token_id = $3 AND t.tenant_id = $4 AND <<valid_token>>
RETURNING session_id;

-- name: browser_session_by_digest
-- The valid session behind a cookie, with its token. `unseen`: its time of use is more than a minute old.
SELECT s.session_id, s.seen_at < db_now() - interval '1 min' AS unseen, <<token_columns>>
FROM browser_sessions s JOIN tokens t USING (token_id)
WHERE s.digest = $1 AND s.expires_at > db_now() AND <<valid_token>>;

-- name: see_browser_session
-- Records that a session is in use, at most once a minute.
UPDATE browser_sessions SET seen_at = db_now() WHERE session_id = $1 AND seen_at < db_now() - interval '1 min';

-- name: list_browser_sessions
-- Valid sessions of a tenant, or of its token $2, the last used first.
SELECT s.session_id, s.token_id, t.name, s.created_at, s.seen_at, s.expires_at, s.address, s.user_agent
FROM browser_sessions s JOIN tokens t USING (token_id)
WHERE s.tenant_id = $1 AND ($2::uuid IS NULL OR s.token_id = $2) AND s.expires_at > db_now() AND <<valid_token>>
ORDER BY s.seen_at DESC, s.session_id LIMIT $3;

-- name: end_browser_session
-- Ends a session of a tenant, or only if it is of token $3.
DELETE FROM browser_sessions WHERE session_id = $1 AND tenant_id = $2 AND ($3::uuid IS NULL OR token_id = $3)
RETURNING session_id;

-- name: end_browser_sessions
-- Ends all sessions of a token except $3.
DELETE FROM browser_sessions WHERE tenant_id = $1 AND token_id = $2 AND session_id IS DISTINCT FROM $3
RETURNING session_id;

-- name: ended_credentials
-- Those of the tokens $1 and browser sessions $2 that are not valid any more.
SELECT given.id FROM unnest($1::uuid[]) AS given (id)
WHERE NOT EXISTS (SELECT FROM tokens t WHERE t.token_id = given.id AND <<valid_token>>)
UNION ALL
SELECT given.id FROM unnest($2::uuid[]) AS given (id)
WHERE NOT EXISTS (SELECT FROM browser_sessions s WHERE s.session_id = given.id AND s.expires_at > db_now());
