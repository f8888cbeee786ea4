-- For a day, a request that creates something and has the same Idempotency-Key gets the response of the first one.
CREATE TABLE request_keys (
    tenant_id   int NOT NULL REFERENCES tenants,
    token_id    uuid NOT NULL,
    request     bytea NOT NULL,
    digest      bytea NOT NULL,
    status      smallint,
    headers     jsonb,
    body        bytea,
    created_at  timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (tenant_id, token_id, request)
);
CREATE INDEX request_keys_age ON request_keys (created_at);
