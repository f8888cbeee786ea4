-- Scheduler processes know one another, so that shards can spread over all of them.
-- A process of an older version has no row here; its shards count as held while their own lease lasts.

CREATE TABLE schedulers (
    scheduler_id      uuid PRIMARY KEY,
    name              text NOT NULL,
    host              text NOT NULL,
    version           text NOT NULL,
    started_at        timestamptz NOT NULL DEFAULT db_now(),
    seen_at           timestamptz NOT NULL DEFAULT db_now(),
    lease_expires_at  timestamptz NOT NULL,
    watched           boolean NOT NULL,
    draining          boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
