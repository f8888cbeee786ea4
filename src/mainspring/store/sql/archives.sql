-- name: archive_candidates
-- The days of table $1 that ended $2 seconds ago, whose partition is still there and can be archived, oldest first. A day of
-- output waits for attempts that began then and still run.
SELECT p.day, d.state, d.write_id FROM (
    SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = $1::text::regclass AND c.relname ~ ('^' || $1 || '_[0-9]{8}$')
) AS p
LEFT JOIN archive_days d ON d.parent = $1 AND d.day = p.day
WHERE p.day < ((db_now() - make_interval(secs => $2)) AT TIME ZONE 'UTC')::date
  AND (d.state IS DISTINCT FROM 'restored' OR d.restored_until < db_now())
  AND ($1 <> 'log_chunks' OR NOT EXISTS (
      SELECT FROM executions e WHERE e.session_id IS NOT NULL AND e.started_at >= (p.day::timestamp AT TIME ZONE 'UTC')
        AND e.started_at < ((p.day + 1)::timestamp AT TIME ZONE 'UTC')))
ORDER BY p.day LIMIT $3;

-- name: begin_archive
-- Makes the caller, $3, the writer of a day that is not archived only; an earlier writer can complete it no more.
INSERT INTO archive_days (parent, day, write_id) VALUES ($1, $2, $3)
ON CONFLICT (parent, day) DO UPDATE SET state = 'writing', write_id = $3, started_at = db_now(), written_at = NULL,
    restored_until = NULL, error = NULL
WHERE archive_days.state <> 'dropped'
RETURNING write_id;

-- name: forget_files_of_day
-- Deletes the entries of the files of a day that an earlier writer recorded.
DELETE FROM archives WHERE parent = $1 AND day = $2;

-- name: archive_failed
-- Records why the writer $3 could not archive a day.
UPDATE archive_days SET error = $4 WHERE parent = $1 AND day = $2 AND write_id = $3;

-- name: copy_history
-- The rows of history that ended from $1 until $2, by tenant and id, with the names of job and worker.
SELECT h.tenant_id, h.execution_id, h.job_id, h.version, h.exit_code, h.duration_ms, h.fires, h.priority, h.attempt, h.state,
       h.trigger, h.queue, epoch_us(h.fire_at), epoch_us(h.due_at), epoch_us(h.queued_at), epoch_us(h.started_at),
       epoch_us(h.finished_at), h.session_id, h.reason, h.error, h.result, h.params, h.created_by, h.backfill_id,
       j.name, w.name
FROM history h JOIN tenants t ON t.tenant_id = h.tenant_id AND t.deleted_at IS NULL
LEFT JOIN jobs j ON j.job_id = h.job_id LEFT JOIN sessions s ON s.session_id = h.session_id
LEFT JOIN workers w ON w.worker_id = s.worker_id
WHERE h.finished_at >= $1 AND h.finished_at < $2 ORDER BY h.tenant_id, h.execution_id;

-- name: copy_attempts
-- The attempts of executions that ended from $1 until $2, by tenant and id.
SELECT a.tenant_id, a.execution_id, a.attempt, a.session_id, a.outcome, a.exit_code, a.error, epoch_us(a.started_at),
       epoch_us(a.ended_at), epoch_us(a.due_at), epoch_us(a.queued_at), a.duration_ms, w.name
FROM history h JOIN attempts a ON a.execution_id = h.execution_id
JOIN tenants t ON t.tenant_id = a.tenant_id AND t.deleted_at IS NULL
LEFT JOIN sessions s ON s.session_id = a.session_id LEFT JOIN workers w ON w.worker_id = s.worker_id
WHERE h.finished_at >= $1 AND h.finished_at < $2 ORDER BY a.tenant_id, a.execution_id, a.attempt;

-- name: copy_log_chunks
-- The output of attempts that began from $1 until $2, by tenant and id.
SELECT c.tenant_id, c.execution_id, c.attempt, c.seq, c.stream, encode(c.data, 'hex'), epoch_us(c.started_at),
       epoch_us(c.received_at)
FROM log_chunks c JOIN tenants t ON t.tenant_id = c.tenant_id AND t.deleted_at IS NULL
WHERE c.started_at >= $1 AND c.started_at < $2 ORDER BY c.tenant_id, c.execution_id, c.attempt, c.started_at, c.seq;

-- name: record_archives
-- Completes a day: records its files, if $3 is still its writer.
WITH completed AS (
    UPDATE archive_days SET state = 'written', written_at = db_now(), error = NULL
    WHERE parent = $1 AND day = $2 AND write_id = $3 AND state = 'writing' RETURNING parent, day
), files AS (
    INSERT INTO archives (name, parent, day, tenant_id, content, rows, bytes, sha256, first_id, last_id, jobs)
    SELECT f.name, c.parent, c.day, f.tenant_id, f.content, f.rows, f.bytes, f.sha256, f.first_id, f.last_id, f.jobs
    FROM completed c, unnest($4::text[], $5::int[], $6::text[], $7::bigint[], $8::bigint[], $9::bytea[], $10::uuid[],
                             $11::uuid[], $12::bytea[])
        AS f (name, tenant_id, content, rows, bytes, sha256, first_id, last_id, jobs)
)
SELECT count(*) FROM completed;

-- name: drop_archived
-- Drops the partition of a day whose rows are all in the archive; returns what it did.
SELECT drop_archived($1, $2, $3);

-- name: archives_with
-- The files of content $2 that may have an execution, and are the only copy of their day, the latest first.
SELECT f.name, f.day, f.tenant_id, f.content, f.rows, f.bytes, f.sha256, f.first_id, f.last_id, f.jobs
FROM archives f
WHERE f.tenant_id = $1 AND f.content = $2 AND f.last_id >= $3 AND f.first_id <= $3 AND f.is_only_copy
ORDER BY f.day LIMIT $4;

-- name: archives_before
-- The files of history with executions above $2 and before $3, and the only copy of their day: the latest $4.
SELECT f.name, f.day, f.tenant_id, f.content, f.rows, f.bytes, f.sha256, f.first_id, f.last_id, f.jobs
FROM archives f
WHERE f.tenant_id = $1 AND f.content = 'history' AND f.last_id > $2 AND f.first_id < $3 AND f.is_only_copy
ORDER BY f.last_id DESC LIMIT $4;

-- name: archived_days
-- The days of the archive, latest first, with their files and errors.
SELECT d.parent, d.day, d.state, d.write_id, d.started_at, d.written_at, d.restored_until, d.error,
       count(f.name) AS files, coalesce(sum(f.rows) FILTER (WHERE f.content = d.parent), 0)::bigint AS rows,
       coalesce(sum(f.bytes), 0)::bigint AS bytes
FROM archive_days d LEFT JOIN archives f USING (parent, day)
WHERE $1::date IS NULL OR d.day = $1 GROUP BY d.parent, d.day ORDER BY d.day DESC, d.parent LIMIT $2;

-- name: files_of_day
-- The files of a day.
SELECT name, day, tenant_id, content, rows, bytes, sha256, first_id, last_id, jobs FROM archives
WHERE parent = $1 AND day = $2 ORDER BY name;

-- name: expired_archives
-- Days that ended $1 seconds ago and are only in the archive, oldest first.
SELECT parent, day FROM archive_days
WHERE state = 'dropped' AND day < ((db_now() - make_interval(secs => $1)) AT TIME ZONE 'UTC')::date
ORDER BY day LIMIT $2;

-- name: forget_archive_day
-- Deletes a day from the catalogue, with the entries of its files.
DELETE FROM archive_days WHERE parent = $1 AND day = $2 AND state = 'dropped';

-- name: archives_of_deleted_tenants
-- Files of tenants that were deleted.
SELECT f.name FROM archives f JOIN tenants t USING (tenant_id) WHERE t.deleted_at IS NOT NULL ORDER BY f.name LIMIT $1;

-- name: forget_archives
-- Deletes the entries of these files.
DELETE FROM archives WHERE name = ANY ($1::text[]);

-- name: archive_lag
-- Days of a table that should have been archived $2 seconds ago and still have a partition.
SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
LEFT JOIN archive_days d ON d.parent = $1 AND c.relname = $1 || to_char(d.day, '_YYYYMMDD')
WHERE i.inhparent = $1::text::regclass AND c.relname ~ ('^' || $1 || '_[0-9]{8}$') AND d.state IS DISTINCT FROM 'restored'
  AND right(c.relname, 8) < to_char((db_now() - make_interval(secs => $2)) AT TIME ZONE 'UTC', 'YYYYMMDD');

-- name: failed_archives
-- Days whose last attempt to archive them failed.
SELECT parent, day, error FROM archive_days WHERE error IS NOT NULL ORDER BY day LIMIT 20;

-- name: lock_archived_day
-- Locks a day that is only in the archive; returns its writer.
SELECT write_id FROM archive_days WHERE parent = $1 AND day = $2 AND state = 'dropped' FOR UPDATE;

-- name: create_restored_partition
-- Creates the partition of a day, not attached yet.
SELECT create_restored_partition($1, $2);

-- name: attach_restored_partition
-- Attaches the partition of a day to its table, and marks the day as restored for $3 seconds.
SELECT attach_restored_partition($1, $2, $3);

-- name: create_restored_rows
-- A table for the rows of a file, gone with the transaction: all its columns are text.
SELECT create_restored_rows($1::text[]);

-- name: restore_rows
-- Moves the rows of a file of content $1 into the partition of a day that is not attached, or into the attempts.
SELECT restore_rows($1, $2);
