-- name: save_checkpoints
-- Stores checkpoints of attempts, accepted only from the session that holds them.
INSERT INTO checkpoints (execution_id, tenant_id, attempt, value, saved_at)
SELECT e.execution_id, e.tenant_id, e.attempt, c.value, db_now()
FROM unnest($2::uuid[], $3::smallint[], $4::jsonb[]) AS c (execution_id, attempt, value)
JOIN executions e ON e.execution_id = ANY (ARRAY[c.execution_id]) AND e.attempt = c.attempt
WHERE e.session_id IS NOT DISTINCT FROM $1 AND e.state = 'running'
ORDER BY c.execution_id
ON CONFLICT (execution_id) DO UPDATE
SET attempt = EXCLUDED.attempt, value = EXCLUDED.value, saved_at = EXCLUDED.saved_at
WHERE checkpoints.attempt <= EXCLUDED.attempt;

-- name: read_checkpoints
-- The checkpoints for attempts that a session runs. An older worker does not name the attempt, and 0 stands for that.
SELECT c.execution_id, c.value
FROM unnest($2::uuid[], $3::int[]) AS r (execution_id, attempt)
JOIN checkpoints c ON c.execution_id = r.execution_id
JOIN executions e ON e.execution_id = ANY (ARRAY[r.execution_id]) AND r.attempt IN (0, e.attempt)
WHERE e.session_id IS NOT DISTINCT FROM $1 AND e.state = 'running';

-- name: forget_checkpoints
-- Deletes checkpoints of final executions.
DELETE FROM checkpoints c
WHERE c.saved_at < db_now() - interval '1 hour'
  AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = c.execution_id);
