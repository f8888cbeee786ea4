-- name: beat
-- A scheduler's heartbeat: renews its own lease and those of its shards, and returns the state of all shards and peers.
-- Locked shards are skipped: a peer that can't lock them can't take them either, and a beat must never wait.
-- $9-$12: this scheduler has decided everything up to $9 for these shards, if epoch and changes are still the same. So a
-- watermark is never far behind, even if nothing is due. An edit of the shard either came before, then `changes` differs,
-- or locks the row later, then its job is active only from after $9.
WITH me AS (
    INSERT INTO schedulers AS s (scheduler_id, name, host, version, lease_expires_at, watched, draining)
    VALUES ($1, $2, $3, $4, db_now() + make_interval(secs => $5), $6, $7)
    ON CONFLICT (scheduler_id) DO UPDATE SET seen_at = db_now(), lease_expires_at = EXCLUDED.lease_expires_at,
        watched = EXCLUDED.watched, draining = EXCLUDED.draining
), mine AS (
    SELECT shard FROM shards
    WHERE owner = $1 AND lease_expires_at < (SELECT db_now()) + make_interval(secs => $8)
    ORDER BY shard FOR UPDATE SKIP LOCKED
), renewed AS (
    UPDATE shards s SET lease_expires_at = db_now() + make_interval(secs => $5),
        watermark = CASE WHEN s.epoch = decided.epoch AND s.changes = decided.changes
                         THEN greatest(s.watermark, least($9, db_now())) ELSE s.watermark END
    FROM mine LEFT JOIN unnest($10::smallint[], $11::bigint[], $12::bigint[]) AS decided (shard, epoch, changes)
        ON decided.shard = mine.shard
    WHERE s.shard = mine.shard AND s.owner = $1
), peers AS MATERIALIZED (
    SELECT scheduler_id, draining,
           CASE WHEN lease_expires_at < (SELECT db_now()) THEN false
                WHEN watched THEN NOT pg_try_advisory_xact_lock_shared(
                    hashtextextended('mainspring:scheduler:' || scheduler_id, 0))
                ELSE true END AS live
    FROM schedulers WHERE scheduler_id <> $1
)
SELECT s.shard, s.owner, s.epoch, s.watermark, s.changes, db_now() AS now,
       s.owner IS NOT NULL
           AND (s.owner = $1 OR coalesce(p.live, s.lease_expires_at > (SELECT db_now()))) AS held,
       (SELECT array_agg(scheduler_id) FROM peers WHERE live AND NOT draining) AS peers
FROM shards s LEFT JOIN peers p ON p.scheduler_id = s.owner
ORDER BY s.shard;

-- name: lock_liveness
-- Takes the advisory lock whose loss shows the peers that this process has died; false while an older session has it.
SELECT pg_try_advisory_lock(hashtextextended('mainspring:scheduler:' || $1::uuid, 0));

-- name: take_shards
-- Takes shards that a beat found without a live owner, if they have not changed since. The new epoch fences the old
-- owner off, should it still be alive. Locked shards (its last transaction is ending) are left for the next beat.
-- $6: a fence of the coordinator, if there is one. Epochs only grow, also when an engine starts again from nothing.
-- During a hold there is nothing to take.
WITH free AS (
    SELECT s.shard FROM shards s
    JOIN unnest($3::smallint[], $4::uuid[], $5::bigint[]) AS seen (shard, owner, epoch) ON seen.shard = s.shard
    WHERE s.owner IS NOT DISTINCT FROM seen.owner AND s.epoch = seen.epoch
      AND NOT EXISTS (SELECT FROM holds WHERE ended_at IS NULL)
    ORDER BY s.shard FOR UPDATE OF s SKIP LOCKED
)
UPDATE shards s SET owner = $1, epoch = greatest(epoch + 1, $6), lease_expires_at = db_now() + make_interval(secs => $2)
FROM free WHERE s.shard = free.shard
RETURNING s.shard, s.epoch, s.watermark, s.changes;

-- name: hand_over_shards
-- Hands shards over to peers, or frees them. Checks the old owner's epoch and the peer: one that drains meanwhile gets
-- nothing.
WITH given AS (
    SELECT s.shard, g.successor FROM shards s
    JOIN unnest($3::smallint[], $4::bigint[], $5::uuid[]) AS g (shard, epoch, successor) ON g.shard = s.shard
    LEFT JOIN schedulers peer ON peer.scheduler_id = g.successor AND NOT peer.draining
    WHERE s.owner = $1 AND s.epoch = g.epoch AND (g.successor IS NULL OR peer.scheduler_id IS NOT NULL)
    ORDER BY s.shard FOR UPDATE OF s
)
UPDATE shards s SET owner = given.successor, epoch = epoch + 1,
    lease_expires_at = CASE WHEN given.successor IS NOT NULL THEN db_now() + make_interval(secs => $2) END
FROM given WHERE s.shard = given.shard AND s.owner = $1
RETURNING s.shard, s.owner;

-- name: still_owned
-- Which of the shards $2 the scheduler $1 owns under the epochs $3. Locks nothing.
SELECT s.shard FROM shards s
JOIN unnest($2::smallint[], $3::bigint[]) AS mine (shard, epoch) ON mine.shard = s.shard AND mine.epoch = s.epoch
WHERE s.owner = $1;

-- name: leave_schedulers
-- The last statement of a scheduler; also deletes peers that died long ago.
DELETE FROM schedulers WHERE scheduler_id = $1 OR lease_expires_at < db_now() - interval '1 hour';

-- name: lock_shards
-- First statement of a firing transaction: later statements see everything committed before the locks. The time is read
-- once all rows are locked (the sort enforces that), so that no edit in force is younger than it.
WITH locked AS MATERIALIZED (
    SELECT s.shard, s.watermark, s.changes, s.blackouts
    FROM shards s JOIN unnest($2::smallint[], $3::bigint[]) AS wanted (shard, epoch) USING (shard)
    WHERE s.owner = $1 AND s.epoch = wanted.epoch
    ORDER BY s.shard FOR UPDATE OF s
)
SELECT shard, watermark, changes, blackouts, db_now() AS now FROM locked ORDER BY shard;

-- name: advance_shards
-- Last statement of a firing transaction: everything up to here is decided.
UPDATE shards SET watermark = $3
WHERE owner = $1 AND shard = ANY ($2::smallint[]) AND watermark < $3;

-- name: bump_shard
-- First statement of every edit of a job: orders the edit against the shard's ticks.
UPDATE shards SET changes = changes + 1 WHERE shard = $1
RETURNING changes, watermark;

-- name: bump_shards
-- First statement of an edit that may touch jobs of any shard: locks all of them, in order, against ticks and edits.
WITH locked AS (SELECT shard FROM shards ORDER BY shard FOR UPDATE)
UPDATE shards s SET changes = changes + 1 FROM locked WHERE s.shard = locked.shard
RETURNING s.shard, s.watermark;

-- name: bump_edited_shards
-- First statement of an edit of many jobs: locks their shards, in order, against ticks and other edits.
WITH locked AS (SELECT shard FROM shards WHERE shard = ANY ($1::smallint[]) ORDER BY shard FOR UPDATE)
UPDATE shards s SET changes = changes + 1 FROM locked WHERE s.shard = locked.shard
RETURNING s.shard, s.changes, s.watermark;

-- name: bump_blackouts
-- First statement of an edit of blackouts: orders it against every tick, which reloads them.
WITH locked AS (SELECT shard FROM shards ORDER BY shard FOR UPDATE)
UPDATE shards s SET blackouts = blackouts + 1 FROM locked WHERE s.shard = locked.shard;

-- name: list_shards
-- Every shard with its lease and its owner, for display.
SELECT s.shard, s.owner, o.name, s.epoch, s.lease_expires_at, s.watermark, o.seen_at, db_now() AS now
FROM shards s LEFT JOIN schedulers o ON o.scheduler_id = s.owner ORDER BY s.shard;

-- name: list_schedulers
-- The scheduler processes, oldest first, with the number of shards each owns. An expired lease: it has died.
SELECT o.scheduler_id, o.name, o.host, o.version, o.started_at, o.seen_at, o.lease_expires_at, o.draining,
       (SELECT count(*) FROM shards s WHERE s.owner = o.scheduler_id) AS shards, db_now() AS now
FROM schedulers o ORDER BY o.started_at, o.scheduler_id;

-- name: count_shard_jobs
-- Number of jobs by shard.
SELECT shard, count(*) AS jobs FROM jobs WHERE shard = ANY ($1::smallint[]) AND deleted_at IS NULL GROUP BY shard;

-- name: database_now
-- Database time, to correct a node's clock.
SELECT db_now();
