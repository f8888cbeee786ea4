-- Sessions of browsers, so that signing out, or ending a session from elsewhere, ends it on the server.
CREATE TABLE browser_sessions (
    session_id  uuid PRIMARY KEY,
    tenant_id   int NOT NULL REFERENCES tenants,
    token_id    uuid NOT NULL REFERENCES tokens ON DELETE CASCADE,
    digest      bytea NOT NULL UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    seen_at     timestamptz NOT NULL DEFAULT db_now(),
    expires_at  timestamptz NOT NULL,
    address     text NOT NULL,
    user_agent  text NOT NULL
);
CREATE INDEX browser_sessions_token ON browser_sessions (token_id, created_at);
CREATE INDEX browser_sessions_tenant ON browser_sessions (tenant_id, seen_at);
CREATE INDEX browser_sessions_expiry ON browser_sessions (expires_at);

-- Login links that have not been used. Using one deletes it.
CREATE TABLE login_links (
    digest      bytea PRIMARY KEY,
    tenant_id   int NOT NULL REFERENCES tenants,
    token_id    uuid NOT NULL REFERENCES tokens ON DELETE CASCADE,
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    expires_at  timestamptz NOT NULL
);
CREATE INDEX login_links_token ON login_links (token_id, created_at);
CREATE INDEX login_links_expiry ON login_links (expires_at);
