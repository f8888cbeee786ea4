-- name: insert_approval
-- Adds an approval of a step; nothing if this approver has given one, or one of two issued the token of the other.
INSERT INTO step_approvals (run_id, tenant_id, step, approver_id, approved_by, note, issuers)
SELECT $1, $2, $3, $4, $5, $6, $7
WHERE NOT EXISTS (SELECT FROM step_approvals a WHERE a.run_id = $1 AND a.tenant_id = $2 AND a.step = $3
                    AND (a.approver_id = ANY ($7::uuid[]) OR $4 = ANY (a.issuers)))
ON CONFLICT DO NOTHING RETURNING step;

-- name: list_approvals
-- The approvals that a step has, in the order in which they were given.
SELECT approved_by FROM step_approvals WHERE run_id = $1 AND tenant_id = $2 AND step = $3 ORDER BY approved_at;

-- name: has_approved
-- Whether this approver has given an approval of a step, or one who issued its token, or whose token it issued.
SELECT EXISTS (SELECT FROM step_approvals WHERE run_id = $1 AND tenant_id = $2 AND step = $3
                 AND (approver_id = $4 OR approver_id = ANY ($5::uuid[]) OR $4 = ANY (issuers)));
