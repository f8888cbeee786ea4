-- name: notify
-- Publishes payloads $2 on channels $1. They are only hints, so the commit does not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), count(pg_notify(channel, payload))
FROM unnest($1::text[], $2::text[]) AS hints (channel, payload);
