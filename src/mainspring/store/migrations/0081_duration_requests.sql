-- Requests to give a job a longer timeout than its queue allows. An approved one lets any writer of the job use it.
CREATE TABLE duration_requests (
    request_id    uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    job           text COLLATE "C" NOT NULL,
    queue         text COLLATE "C" NOT NULL,
    timeout_s     float8 NOT NULL CONSTRAINT duration_requests_timeout CHECK (timeout_s > 0),
    reason        text NOT NULL,
    state         text COLLATE "C" NOT NULL DEFAULT 'requested' CONSTRAINT duration_requests_state
                  CHECK (state IN ('requested', 'approved', 'refused', 'withdrawn')),
    requested_at  timestamptz NOT NULL DEFAULT db_now(),
    requested_by  text NOT NULL,
    person_id     uuid NOT NULL,
    decided_at    timestamptz,
    decided_by    text,
    note          text,
    CONSTRAINT duration_requests_decided CHECK ((state = 'requested') = (decided_at IS NULL))
);
CREATE UNIQUE INDEX duration_requests_open ON duration_requests (tenant_id, job, queue) WHERE state = 'requested';
CREATE INDEX duration_requests_approved ON duration_requests (tenant_id, job, queue) WHERE state = 'approved';
CREATE INDEX duration_requests_tenant ON duration_requests (tenant_id, requested_at, request_id);
