-- name: insert_channel
-- Inserts a channel. Settlers write its events as soon as they have read it.
INSERT INTO channels (channel_id, tenant_id, name, kind, target, secrets, key_id, envelope, events, jobs, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: list_channels
-- A tenant's channels by name; with $2 one of them.
SELECT c.*, (SELECT count(*) FROM outbox o WHERE o.channel_id = c.channel_id AND o.state = 'pending') AS pending
FROM channels c WHERE c.tenant_id = $1 AND ($2::text IS NULL OR c.name = $2::text COLLATE "C") ORDER BY c.name;

-- name: lock_channel
-- Locks a channel before its address and secrets are compared with new ones.
SELECT FROM channels WHERE tenant_id = $1 AND name = $2 FOR UPDATE;

-- name: update_channel
-- Replaces a channel and clears its failures.
UPDATE channels SET kind = $3, target = $4, secrets = $5, key_id = $6, envelope = $7, events = $8, jobs = $9,
    updated_at = db_now(), failing_since = NULL, last_error = NULL, disabled_at = NULL
WHERE tenant_id = $1 AND name = $2
RETURNING channel_id;

-- name: enable_channel
-- Enables a channel and clears its failures.
UPDATE channels SET failing_since = NULL, last_error = NULL, disabled_at = NULL, updated_at = db_now()
WHERE tenant_id = $1 AND name = $2
RETURNING channel_id;

-- name: delete_channel
-- Deletes a channel with its deliveries, unless jobs notify it.
DELETE FROM channels c WHERE c.tenant_id = $1 AND c.name = $2
  AND NOT EXISTS (SELECT FROM job_notices n WHERE n.tenant_id = $1 AND n.channel = c.name)
RETURNING channel_id;

-- name: known_channels
-- The existing channels among these names, locked against deletion until the end of the transaction.
SELECT name FROM channels WHERE tenant_id = $1 AND name = ANY ($2::text[]) FOR KEY SHARE;

-- name: replace_notifications
-- Replaces what a job notifies of, and which channels. Returns a row if there are or were any.
WITH gone AS (
    DELETE FROM job_notices WHERE job_id = $1 AND tenant_id = $2
      AND (notice, channel) NOT IN (SELECT * FROM unnest($3::text[], $4::text[]))
    RETURNING job_id
), fresh AS (
    INSERT INTO job_notices (job_id, tenant_id, notice, channel, by_s, factor)
    SELECT $1, $2, * FROM unnest($3::text[], $4::text[], $5::float8[], $6::float8[])
    ON CONFLICT (notice, job_id, channel) DO UPDATE SET by_s = excluded.by_s, factor = excluded.factor
    RETURNING job_id
)
SELECT job_id FROM (SELECT * FROM gone UNION ALL SELECT * FROM fresh) AS any_of LIMIT 1;

-- name: replace_notifications_of_jobs
-- The same for many jobs ($2); the rows are those of all of them.
WITH wanted AS (
    SELECT * FROM unnest($3::uuid[], $4::text[], $5::text[], $6::float8[], $7::float8[])
        AS w (job_id, notice, channel, by_s, factor)
), gone AS (
    DELETE FROM job_notices n WHERE n.job_id = ANY ($2::uuid[]) AND n.tenant_id = $1 AND NOT EXISTS (
        SELECT FROM wanted w
        WHERE w.job_id = n.job_id AND w.notice = n.notice COLLATE "C" AND w.channel = n.channel COLLATE "C"
    )
)
INSERT INTO job_notices (job_id, tenant_id, notice, channel, by_s, factor)
SELECT job_id, $1, notice, channel, by_s, factor FROM wanted
ON CONFLICT (notice, job_id, channel) DO UPDATE SET by_s = excluded.by_s, factor = excluded.factor;

-- name: subscribed
-- Names of the events with a subscriber, over all tenants: a handful, each found by one index probe. A stream of all events
-- counts as a subscriber of those in $1.
SELECT DISTINCT unnest(events) AS event FROM channels WHERE disabled_at IS NULL
UNION ALL
SELECT unnest($1::text[]) WHERE events_wanted()
UNION ALL
SELECT 'job.' || k.notice FROM unnest(ARRAY['failed', 'recovered', 'slow', 'late', 'missed']) AS k (notice)
WHERE EXISTS (SELECT FROM job_notices n WHERE n.notice = k.notice COLLATE "C");
