-- name: notify
-- Publishes on a channel. It is only a hint, so it does not wait for the disk, nor delay the commits of others.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2);
