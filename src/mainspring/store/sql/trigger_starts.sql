-- name: record_start
-- Records which trigger and delivery started an execution, with the transaction that inserts it.
INSERT INTO trigger_starts (execution_id, tenant_id, job_id, trigger_id, name, kind, key, event)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (execution_id) DO NOTHING;

-- name: starts_of
-- The triggers that started some executions.
SELECT * FROM trigger_starts WHERE execution_id = ANY ($1::uuid[]) AND tenant_id = $2;

-- name: forget_starts
-- Deletes up to $2 starts of ended executions that were due before the id $1, oldest first.
DELETE FROM trigger_starts t USING (
    SELECT s.execution_id FROM trigger_starts s
    WHERE s.execution_id < $1 AND NOT EXISTS (SELECT FROM executions e WHERE e.execution_id = s.execution_id)
    ORDER BY s.execution_id LIMIT $2
) AS old
WHERE t.execution_id = old.execution_id;
