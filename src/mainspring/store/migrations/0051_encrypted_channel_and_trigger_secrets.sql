-- Secrets of triggers are encrypted as those of channels are; a secret names the channels and triggers that may use it.
ALTER TABLE triggers ADD COLUMN key_id text COLLATE "C", ADD COLUMN envelope bytea;
ALTER TABLE secrets
    ADD COLUMN channels text[] NOT NULL DEFAULT '{}',
    ADD COLUMN triggers text[] NOT NULL DEFAULT '{}';

-- A quota of bytes of output per day, and what of it is used. Processes add to `bytes` every few seconds.
ALTER TABLE tenants ADD COLUMN output_per_day bigint CONSTRAINT tenants_output_per_day CHECK (output_per_day >= 0);
CREATE TABLE tenant_output (
    tenant_id  int NOT NULL REFERENCES tenants,
    day        date NOT NULL,
    bytes      bigint NOT NULL,
    PRIMARY KEY (tenant_id, day)
) WITH (fillfactor = 50);
