-- Users that an OpenID Connect issuer knows can be blocked: their role comes from the issuer, so deleting them would
-- only last until their next token.
ALTER TABLE principals ADD COLUMN blocked_at timestamptz;

-- Sign-ins by authorization code that were completed, so that none can be completed twice.
CREATE TABLE used_sign_ins (
    digest      bytea PRIMARY KEY,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX used_sign_ins_expiry ON used_sign_ins (expires_at);
