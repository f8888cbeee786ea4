-- name: notify
-- Publishes on a channel. It is a hint, so it waits for no disk, and no commit of others waits behind it.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2);
