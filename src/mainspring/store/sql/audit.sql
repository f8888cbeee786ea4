-- name: insert_audit
-- Appends audit entries in the transaction of the change. Arrays: one entry per subject, all with one actor and action.
INSERT INTO audit (tenant_id, actor, actor_id, action, subject, name, reason, details, principal_id, request_id, source)
SELECT $1, $2, $8, $3, e.subject, e.name, $4, e.details, $9, $10, $11
FROM unnest($5::text[], $6::text[], $7::jsonb[]) AS e (subject, name, details);

-- name: latest_submission
-- The execution that an actor requested last by an audited request, and when.
SELECT at, CASE WHEN action = 'run.start' THEN subject ELSE details ->> 'execution_id' END AS execution_id
FROM audit
WHERE tenant_id = $1 AND actor_id = $2 AND action IN ('job.trigger', 'run.start', 'execution.requeue')
ORDER BY audit_id DESC LIMIT 1;

-- name: list_audit
-- A page of entries, newest first, before an entry; optionally of some subjects, one actor (by name or by
-- the id of its token), some actions.
SELECT a.*, c.seq, c.hash FROM audit a LEFT JOIN audit_chain c ON c.audit_id = a.audit_id
WHERE a.tenant_id = $1 AND a.audit_id < $2
  AND ($4::text[] IS NULL OR a.subject = ANY ($4)) AND ($5::text IS NULL OR a.actor = $5)
  AND ($6::text[] IS NULL OR a.action = ANY ($6)) AND ($7::uuid IS NULL OR a.actor_id = $7)
ORDER BY a.audit_id DESC LIMIT $3;
