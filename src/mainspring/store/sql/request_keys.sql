-- name: begin_request
-- Inserts the key of a request unless a request of the last day has it; waits for one that is being executed.
INSERT INTO request_keys AS k (tenant_id, token_id, request, digest) VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant_id, token_id, request) DO UPDATE
SET digest = excluded.digest, status = NULL, headers = NULL, body = NULL, created_at = excluded.created_at
WHERE k.created_at < db_now() - interval '1 day'
RETURNING true;

-- name: answered_request
-- The first request with a key, and its response.
SELECT digest, status, headers, body FROM request_keys WHERE tenant_id = $1 AND token_id = $2 AND request = $3;

-- name: answer_request
-- Stores the response of a request with a key, in the transaction that inserted the key.
UPDATE request_keys SET status = $4, headers = $5, body = $6
WHERE tenant_id = $1 AND token_id = $2 AND request = $3 AND status IS NULL;
