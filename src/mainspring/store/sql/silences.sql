-- name: open_silences
-- Silences of all tenants that are not over; the leader caches them.
SELECT tenant_id, matchers, start_at, end_at, schedule_key, lasts_ms FROM silences
WHERE end_at IS NULL OR end_at > db_now();

-- name: list_silences
-- A tenant's silences and maintenance windows, newest first; without those that ended more than a week ago.
SELECT * FROM silences
WHERE tenant_id = $1 AND ($2::uuid IS NULL OR silence_id = $2)
  AND (end_at IS NULL OR end_at > db_now() - interval '7 days')
ORDER BY created_at DESC, silence_id LIMIT $3;

-- name: insert_silence
-- Inserts a silence or maintenance window.
INSERT INTO silences (silence_id, tenant_id, matchers, start_at, end_at, schedule, schedule_key, lasts_ms, reason,
                      created_by)
VALUES ($1, $2, $3, coalesce($4, CASE WHEN $5::timestamptz IS NOT NULL THEN db_now() END), $5, $6, $7, $8, $9, $10);

-- name: delete_silence
-- Deletes a silence; the next evaluation sends what it held back.
DELETE FROM silences WHERE silence_id = $1 AND tenant_id = $2 RETURNING silence_id;

-- name: release_held
-- Makes messages due that a silence of the tenant holds back; other silences in force hold them back again.
UPDATE outbox SET next_at = db_now()
WHERE tenant_id = $1 AND state = 'pending' AND tries = 0 AND next_at > db_now();
