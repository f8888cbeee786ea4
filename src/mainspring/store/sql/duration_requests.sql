-- part: request_columns
request_id, job, queue, timeout_s, reason, state, requested_at, requested_by, person_id, decided_at, decided_by, note, issuers

-- name: insert_duration_request
-- Adds a request, unless the tenant has $8 open ones.
INSERT INTO duration_requests (request_id, tenant_id, job, queue, timeout_s, reason, requested_by, person_id, issuers)
SELECT $1, $2, $3, $4, $5, $6, $7, $9, $10
WHERE (SELECT count(*) FROM duration_requests WHERE tenant_id = $2 AND state = 'requested') < $8::int
RETURNING <<request_columns>>;

-- name: list_duration_requests
-- A page of requests, newest first, optionally of one state, before ($4, $5).
SELECT <<request_columns>> FROM duration_requests
WHERE tenant_id = $1 AND ($3::text IS NULL OR state = $3)
  AND ($4::timestamptz IS NULL OR (requested_at, request_id) < ($4, $5))
ORDER BY requested_at DESC, request_id DESC LIMIT $2;

-- name: lock_duration_request
-- A request, with its row locked.
SELECT <<request_columns>> FROM duration_requests WHERE request_id = $1 AND tenant_id = $2 FOR UPDATE;

-- name: decide_duration_request
-- Decides about a request that is still in the state $3.
UPDATE duration_requests SET state = $4, decided_at = db_now(), decided_by = $5, note = $6
WHERE request_id = $1 AND tenant_id = $2 AND state = $3 RETURNING <<request_columns>>;

-- name: approved_duration
-- The longest timeout that is approved for a job in a queue. Revoking it waits for the transaction that uses it.
SELECT max(timeout_s) FROM (
    SELECT timeout_s FROM duration_requests WHERE tenant_id = $1 AND job = $2 AND queue = $3 AND state = 'approved'
    FOR SHARE
) AS approved;
