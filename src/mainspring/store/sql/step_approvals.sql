-- name: insert_approval
-- Adds an approval of a step; nothing if this approver has given one.
INSERT INTO step_approvals (run_id, tenant_id, step, approver_id, approved_by, note) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING RETURNING step;

-- name: list_approvals
-- The approvals that a step has, in the order in which they were given.
SELECT approved_by FROM step_approvals WHERE run_id = $1 AND tenant_id = $2 AND step = $3 ORDER BY approved_at;

-- name: has_approved
-- Whether this approver has given an approval of a step.
SELECT EXISTS (SELECT FROM step_approvals WHERE run_id = $1 AND tenant_id = $2 AND step = $3 AND approver_id = $4);
