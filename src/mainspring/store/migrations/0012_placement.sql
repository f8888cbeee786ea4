-- Queues that bound how long an attempt may take, work that makes room for more urgent work, and places kept for a time.
-- An older program heeds none of it and is not disturbed by it: upgrade api processes first.

ALTER TABLE queues
    ADD COLUMN max_duration_s float8,
    ADD CONSTRAINT queues_max_duration CHECK (max_duration_s > 0);

ALTER TABLE job_versions
    ADD COLUMN exceeds boolean NOT NULL DEFAULT false,
    ADD COLUMN preemptible boolean NOT NULL DEFAULT false;
CREATE INDEX job_versions_preemptible ON job_versions (job_id, version) WHERE preemptible;

ALTER TABLE sessions ADD COLUMN takes text[] NOT NULL DEFAULT '{}';

CREATE TABLE evictions (
    execution_id    uuid NOT NULL,
    attempt         smallint NOT NULL,
    tenant_id       int NOT NULL,
    session_id      uuid NOT NULL,
    urgent_id       uuid NOT NULL,
    urgent_job      text NOT NULL,
    urgent_attempt  smallint NOT NULL,
    asked_at        timestamptz NOT NULL DEFAULT db_now(),
    PRIMARY KEY (execution_id, attempt)
);
CREATE INDEX evictions_urgent ON evictions (urgent_id, urgent_attempt);
CREATE INDEX evictions_asked ON evictions (asked_at);

CREATE TABLE reservations (
    reservation_id  uuid PRIMARY KEY,
    tenant_id       int NOT NULL REFERENCES tenants,
    name            text COLLATE "C" NOT NULL,
    start_at        timestamptz NOT NULL,
    end_at          timestamptz NOT NULL,
    slots           int NOT NULL CHECK (slots > 0),
    resources       jsonb NOT NULL DEFAULT '{}',
    labels          jsonb NOT NULL DEFAULT '{}',
    queue           text COLLATE "C",
    job_id          uuid REFERENCES jobs,
    shared          boolean NOT NULL DEFAULT false,
    workers         text[] NOT NULL DEFAULT '{}',
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT db_now(),
    created_by      text NOT NULL,
    deleted_at      timestamptz,
    deleted_by      text,
    CHECK (end_at > start_at),
    CHECK (queue IS NULL OR job_id IS NULL)
);
CREATE UNIQUE INDEX reservations_name ON reservations (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX reservations_open ON reservations (end_at) WHERE deleted_at IS NULL;
