-- Events of all tenants on their way to the event stream (`serve --events`).

-- name: want_events
-- Has events written for another $1 s, with $2 also those before the end of an execution; returns whether that is new.
WITH before AS (
    SELECT wanted_until > db_now() AS ends, coalesce(all_until > db_now(), false) AS starts FROM event_stream
)
INSERT INTO event_stream AS s (wanted_until, all_until)
VALUES (db_now() + make_interval(secs => $1), CASE WHEN $2 THEN db_now() + make_interval(secs => $1) END)
ON CONFLICT (is_only) DO UPDATE SET wanted_until = greatest(s.wanted_until, excluded.wanted_until),
    all_until = greatest(s.all_until, excluded.all_until)
RETURNING NOT EXISTS (SELECT FROM before WHERE ends AND (starts OR NOT $2)) AS is_new;

-- name: follow_executions
-- Enables the triggers that write events before the end of an execution if they are wanted, and disables them otherwise;
-- returns whether they are enabled.
SELECT follow_executions();

-- name: next_events
-- The oldest $1 events. Events with the same key are in their order; one that is committed late is found later.
SELECT e.event_number, e.event_id, e.event, e.key, e.body, e.created_at, t.name AS tenant
FROM event_outbox e JOIN tenants t USING (tenant_id) ORDER BY e.event_number LIMIT $1;

-- name: events_relayed
-- Deletes events that the stream has stored.
DELETE FROM event_outbox WHERE event_number = ANY ($1::bigint[]);

-- name: events_waiting
-- About how many events wait, and for how many seconds the oldest has: from the two ends of the numbers.
SELECT coalesce(last.n - first.n + 1, 0) AS events, coalesce(extract(epoch FROM db_now() - first.at), 0)::float8 AS since_s
FROM (SELECT min(event_number) AS n, min(created_at) AS at FROM (
          SELECT event_number, created_at FROM event_outbox ORDER BY event_number LIMIT 1) AS f) AS first,
     (SELECT max(event_number) AS n FROM event_outbox) AS last;

-- name: drop_events
-- Deletes up to $2 of the oldest events, so that at most about $1 remain; returns how many.
WITH dropped AS (
    DELETE FROM event_outbox WHERE event_number IN (
        SELECT event_number FROM event_outbox
        WHERE event_number <= (SELECT max(event_number) FROM event_outbox) - $1::bigint
        ORDER BY event_number LIMIT $2
    ) RETURNING event_number
)
SELECT count(*)::int FROM dropped;

-- name: forget_events
-- Deletes up to $2 events older than $1 s: no process has an event stream any more.
DELETE FROM event_outbox WHERE event_number IN (
    SELECT event_number FROM event_outbox
    WHERE created_at < db_now() - make_interval(secs => $1) ORDER BY event_number LIMIT $2
);
