-- name: lock_reservations
-- Serializes writers: what a new reservation may have depends on all others.
SELECT pg_advisory_xact_lock(hashtext('mainspring:reservations'));

-- name: open_reservations
-- Reservations that have not ended, of a tenant ($1) or of all (null).
SELECT r.*, j.name AS job, coalesce(r.queue, j.queue) AS serves, l.demand
FROM reservations r LEFT JOIN jobs j ON j.job_id = r.job_id LEFT JOIN lines l ON l.line_id = j.line_id
WHERE r.deleted_at IS NULL AND r.end_at > db_now() AND ($1::int IS NULL OR r.tenant_id = $1)
ORDER BY r.start_at, r.reservation_id;

-- name: insert_reservation
-- Adds a reservation. Dispatchers keep its slots free as soon as they read it.
INSERT INTO reservations (reservation_id, tenant_id, name, start_at, end_at, slots, resources, labels, queue, job_id,
                          shared, workers, reason, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: delete_reservation
-- Deletes a reservation.
UPDATE reservations SET deleted_at = db_now(), deleted_by = $3
WHERE tenant_id = $1 AND name = $2 AND deleted_at IS NULL
RETURNING reservation_id;

-- name: end_past_reservations
-- Frees the name of a reservation whose window has ended.
UPDATE reservations SET deleted_at = db_now(), deleted_by = 'its end'
WHERE tenant_id = $1 AND name = $2 AND deleted_at IS NULL AND end_at <= db_now();
