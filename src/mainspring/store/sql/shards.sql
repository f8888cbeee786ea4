-- name: acquire_shards
-- Takes shards that nobody holds, or whose lease has ended. The new epoch shuts out the old owner.
UPDATE shards SET owner = $1, epoch = epoch + 1, lease_expires_at = db_now() + make_interval(secs => $2)
WHERE shard IN (
    SELECT shard FROM shards WHERE owner IS NULL OR lease_expires_at < db_now()
    ORDER BY shard FOR UPDATE SKIP LOCKED
)
RETURNING shard, epoch, watermark, changes;

-- name: renew_shards
-- Renews the leases this owner still has; what is not returned is no longer ours. Changes: the net under NOTIFY.
WITH mine AS (
    SELECT shard FROM shards WHERE owner = $1 ORDER BY shard FOR UPDATE
)
UPDATE shards s SET lease_expires_at = db_now() + make_interval(secs => $2)
FROM mine WHERE s.shard = mine.shard
RETURNING s.shard, s.epoch, s.changes;

-- name: release_shards
-- Gives shards back at a planned stop, so that a peer need not wait for the lease.
WITH mine AS (SELECT shard FROM shards WHERE owner = $1 ORDER BY shard FOR UPDATE)
UPDATE shards s SET owner = NULL, lease_expires_at = NULL FROM mine WHERE s.shard = mine.shard;

-- name: lock_shards
-- First statement of a firing transaction: what follows sees everything committed before the locks.
SELECT s.shard, s.watermark, s.changes, s.blackouts, db_now() AS now
FROM shards s JOIN unnest($2::smallint[], $3::bigint[]) AS held (shard, epoch) USING (shard)
WHERE s.owner = $1 AND s.epoch = held.epoch
ORDER BY s.shard FOR UPDATE OF s;

-- name: advance_shards
-- Last statement of a firing transaction: everything up to here is decided.
UPDATE shards SET watermark = $3
WHERE owner = $1 AND shard = ANY ($2::smallint[]) AND watermark < $3;

-- name: bump_shard
-- First statement of every edit of a job: orders the edit against the shard's ticks.
UPDATE shards SET changes = changes + 1 WHERE shard = $1
RETURNING changes, watermark, pg_notify('mainspring_shards', 'edit ' || shard);

-- name: bump_shards
-- First statement of an edit that may touch jobs of any shard: holds all of them, in order, against ticks and edits.
WITH held AS (SELECT shard FROM shards ORDER BY shard FOR UPDATE)
UPDATE shards s SET changes = changes + 1 FROM held WHERE s.shard = held.shard
RETURNING s.shard, s.watermark, pg_notify('mainspring_shards', 'edit ' || s.shard);

-- name: bump_blackouts
-- First statement of an edit of blackouts: orders it against every tick, which reads them anew.
WITH held AS (SELECT shard FROM shards ORDER BY shard FOR UPDATE)
UPDATE shards s SET blackouts = blackouts + 1 FROM held WHERE s.shard = held.shard;

-- name: list_shards
-- Every shard with its lease, for people.
SELECT shard, owner, epoch, lease_expires_at, watermark, changes, db_now() AS now FROM shards ORDER BY shard;

-- name: database_now
-- Database time, to correct a node's clock.
SELECT db_now();
