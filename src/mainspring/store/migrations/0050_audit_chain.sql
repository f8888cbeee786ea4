-- Audit entries become a hash chain per tenant, and one of the cluster. Entries are inserted as before; the leader chains
-- them within a second. Existing entries are chained in the order of their ids, as they are found now.
ALTER TABLE audit
    DROP CONSTRAINT audit_tenant_id_fkey,           -- 0 is the cluster
    ADD COLUMN principal_id uuid,
    ADD COLUMN request_id text,
    ADD COLUMN source text;

CREATE TABLE audit_pending (
    audit_id   bigint PRIMARY KEY,
    tenant_id  int NOT NULL
);
CREATE INDEX audit_pending_tenant ON audit_pending (tenant_id, audit_id);
INSERT INTO audit_pending SELECT audit_id, tenant_id FROM audit;

CREATE TABLE audit_chain (
    tenant_id  int NOT NULL,
    seq        bigint NOT NULL CONSTRAINT audit_chain_seq CHECK (seq > 0), -- 1, 2, 3 without gaps
    audit_id   bigint NOT NULL,
    previous   bytea NOT NULL,                      -- hash of the predecessor
    hash       bytea NOT NULL,
    PRIMARY KEY (tenant_id, seq)
);
CREATE UNIQUE INDEX audit_chain_entry ON audit_chain (audit_id);
CREATE TRIGGER audit_chain_stays BEFORE UPDATE OR DELETE ON audit_chain EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON audit_chain EXECUTE FUNCTION refuse_change();

CREATE TABLE audit_chains (
    tenant_id  int PRIMARY KEY,
    seq        bigint NOT NULL,
    hash       bytea NOT NULL
);

CREATE TABLE audit_heads (
    tenant_id  int NOT NULL,
    seq        bigint NOT NULL,
    hash       bytea NOT NULL,
    key_id     text COLLATE "C" NOT NULL,
    signature  bytea NOT NULL,
    signed_at  timestamptz NOT NULL DEFAULT db_now(),
    sent_at    timestamptz,
    PRIMARY KEY (tenant_id, seq, key_id)
);

-- A trigger, so that entries of processes of earlier versions are chained as well.
CREATE FUNCTION audit_to_chain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_pending SELECT audit_id, tenant_id FROM fresh;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_to_chain AFTER INSERT ON audit
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION audit_to_chain();

-- Approvals of steps that need more than one, until the last one is given.
CREATE TABLE step_approvals (
    run_id       uuid NOT NULL REFERENCES runs ON DELETE CASCADE,
    tenant_id    int NOT NULL,
    step         int NOT NULL,
    approver_id  uuid NOT NULL,                     -- of the user; of a token without one, the token
    approved_by  text NOT NULL,
    note         text NOT NULL,
    approved_at  timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (run_id, step, approver_id)
);
