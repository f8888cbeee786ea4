-- name: notify
-- Publishes on a channel.
SELECT pg_notify($1, $2);
