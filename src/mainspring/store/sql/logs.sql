-- part: log_chunks_of_running
-- Log chunks whose session runs their attempt, for an INSERT; a chunk sent twice is stored once.
SELECT e.execution_id, e.attempt, c.seq, e.tenant_id, c.stream, c.data, e.started_at
FROM c JOIN executions e ON e.execution_id = ANY (ARRAY[c.execution_id]) AND e.attempt = c.attempt
WHERE e.session_id IS NOT DISTINCT FROM c.session_id AND e.state = 'running'
ON CONFLICT DO NOTHING

-- name: append_logs
-- Appends log chunks, each only from the session that runs its attempt.
WITH c AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::int[], $5::text[], $6::bytea[])
        AS c (session_id, execution_id, attempt, seq, stream, data)
)
INSERT INTO log_chunks (execution_id, attempt, seq, tenant_id, stream, data, started_at)
<<log_chunks_of_running>>;

-- name: read_logs
-- Log chunks in order, after a position. The time inside the id excludes earlier partitions.
SELECT attempt, seq, stream, data, received_at FROM log_chunks
WHERE execution_id = $1 AND tenant_id = $2 AND started_at >= $3 AND (attempt, seq) > ($4, $5)
ORDER BY attempt, seq LIMIT $6;

-- name: read_logs_before
-- Log chunks before a position, newest first: at most $6 chunks; the last one may exceed $7 bytes in total.
SELECT attempt, seq, stream, data, received_at FROM (
    SELECT attempt, seq, stream, data, received_at,
           sum(octet_length(data)) OVER (ORDER BY attempt DESC, seq DESC) AS bytes
    FROM (
        SELECT attempt, seq, stream, data, received_at FROM log_chunks
        WHERE execution_id = $1 AND tenant_id = $2 AND started_at >= $3 AND (attempt, seq) < ($4, $5)
        ORDER BY attempt DESC, seq DESC LIMIT $6
    ) AS newest
) AS counted
WHERE bytes - octet_length(data) < $7 ORDER BY attempt DESC, seq DESC;
