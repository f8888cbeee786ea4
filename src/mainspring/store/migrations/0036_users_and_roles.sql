-- Roles that a tenant defines, as sets of scopes; the built-in ones are in domain/roles.py.
CREATE TABLE roles (
    tenant_id    int NOT NULL REFERENCES tenants,
    name         text NOT NULL,
    scopes       text[] NOT NULL,
    description  text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT db_now(),
    created_by   text NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- Users and services. Their role limits what their tokens may do. A deleted one keeps its row, for the audit log.
CREATE TABLE principals (
    principal_id  uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    kind          text NOT NULL CONSTRAINT principals_kind CHECK (kind IN ('user', 'service')),
    name          text NOT NULL,
    display_name  text NOT NULL,
    role          text NOT NULL,
    issuer        text,
    subject       text,
    created_at    timestamptz NOT NULL DEFAULT db_now(),
    created_by    text NOT NULL,
    deleted_at    timestamptz,
    CONSTRAINT principals_subject CHECK ((issuer IS NULL) = (subject IS NULL))
);
CREATE UNIQUE INDEX principals_name ON principals (tenant_id, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX principals_issuer ON principals (tenant_id, issuer, subject)
    WHERE issuer IS NOT NULL AND deleted_at IS NULL;

ALTER TABLE tokens
    ADD COLUMN principal_id uuid REFERENCES principals,
    ADD COLUMN role text,
    ADD COLUMN created_by text,
    ADD COLUMN last_used_at timestamptz,
    ADD COLUMN replaced_by uuid;
CREATE INDEX tokens_tenant ON tokens (tenant_id, created_at) WHERE revoked_at IS NULL;
CREATE INDEX tokens_principal ON tokens (principal_id) WHERE principal_id IS NOT NULL;

-- The schedule quota of a token that belongs to a user is the user's: `token_id` is then the id of the principal.
ALTER TABLE token_grants DROP CONSTRAINT token_grants_token_id_fkey;
