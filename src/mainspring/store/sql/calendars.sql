-- name: calendars_named
-- The current content of these calendars.
SELECT c.name, v.content FROM calendars c JOIN calendar_versions v USING (tenant_id, name, version)
WHERE c.tenant_id = $1 AND c.name = ANY ($2::text[]);

-- name: list_calendars
-- A page of calendars by name, after a name, with how many jobs follow each.
SELECT c.name, c.version, v.content, v.created_at, v.created_by, (
    SELECT count(*) FROM jobs j
    WHERE j.tenant_id = c.tenant_id AND j.calendars @> ARRAY[c.name] AND j.deleted_at IS NULL
) AS jobs
FROM calendars c JOIN calendar_versions v USING (tenant_id, name, version)
WHERE c.tenant_id = $1 AND c.name > $2 AND ($4::text IS NULL OR c.name = $4)
ORDER BY c.name LIMIT $3;

-- name: list_calendar_versions
-- All versions of a calendar, newest first, before a number; also of a deleted one.
SELECT version, content, created_at, created_by FROM calendar_versions
WHERE tenant_id = $1 AND name = $2 AND version < $3 ORDER BY version DESC LIMIT $4;

-- name: write_calendar
-- Writes a new version of a calendar, or creates it. The caller has locked all shard rows, which serializes writers.
WITH fresh AS (
    INSERT INTO calendar_versions (tenant_id, name, version, content, created_by)
    SELECT $1, $2, 1 + coalesce(max(version), 0), $3, $4 FROM calendar_versions WHERE tenant_id = $1 AND name = $2
    RETURNING version
)
INSERT INTO calendars (tenant_id, name, version) SELECT $1, $2, version FROM fresh
ON CONFLICT (tenant_id, name) DO UPDATE SET version = excluded.version
RETURNING version;

-- name: delete_calendar
-- Deletes a calendar that no job follows; its versions stay readable. The caller has locked all shard rows.
DELETE FROM calendars c
WHERE c.tenant_id = $1 AND c.name = $2 AND NOT EXISTS (
    SELECT FROM jobs j WHERE j.tenant_id = $1 AND j.calendars @> ARRAY[$2::text] AND j.deleted_at IS NULL
)
RETURNING version;

-- name: calendar_followers
-- The names of the first few jobs that follow a calendar, and how many there are.
SELECT j.name, count(*) OVER () AS jobs FROM jobs j
WHERE j.tenant_id = $1 AND j.calendars @> ARRAY[$2::text] AND j.deleted_at IS NULL ORDER BY j.name LIMIT $3;

-- name: lock_followers
-- Locks the jobs that follow a calendar, in key order. The caller has locked all shard rows.
SELECT j.job_id, j.name, j.version, j.shard, j.schedule_id, j.active_from, j.start_at, j.end_at, j.paused_at
FROM jobs j
WHERE j.tenant_id = $1 AND j.schedule_id IS NOT NULL AND j.calendars @> ARRAY[$2::text] AND j.deleted_at IS NULL
ORDER BY j.job_id FOR UPDATE OF j;

-- name: move_followers
-- Moves followers of a calendar from old to new schedules, from an instant on; job versions stay.
UPDATE jobs j SET schedule_id = moved.new_id, change = s.changes, active_from = $5
FROM unnest($3::bigint[], $4::bigint[]) AS moved (old_id, new_id), shards s
WHERE j.tenant_id = $1 AND j.calendars @> ARRAY[$2::text] AND j.deleted_at IS NULL
  AND j.schedule_id = moved.old_id AND s.shard = j.shard;
