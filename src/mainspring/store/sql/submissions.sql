-- name: take_submissions
-- Deletes committed submissions of all tenants, oldest first, and returns them; skips those that another process takes. The
-- params are text: one that cannot be read must not hold up the others.
DELETE FROM submissions s USING (
    SELECT execution_id FROM submissions ORDER BY execution_id LIMIT $1 FOR UPDATE SKIP LOCKED
) AS taken
WHERE s.execution_id = taken.execution_id
RETURNING s.execution_id, s.tenant_id, s.job_id, s.key, s.at, s.due_at, s.params::text AS params, s.created_by,
          (SELECT j.name FROM jobs j WHERE j.job_id = s.job_id) AS job_name,
          (SELECT j.version FROM jobs j WHERE j.job_id = s.job_id) AS version;
