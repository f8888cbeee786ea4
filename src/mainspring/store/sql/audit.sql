-- name: insert_audit
-- Appends audit entries in the transaction of the change. Arrays: one entry per subject, all with one actor and action.
INSERT INTO audit (tenant_id, actor, action, subject, name, reason, details)
SELECT $1, $2, $3, e.subject, e.name, $4, e.details
FROM unnest($5::text[], $6::text[], $7::jsonb[]) AS e (subject, name, details);

-- name: list_audit
-- A page of entries, newest first, before an entry; optionally of one subject, one actor, some actions.
SELECT * FROM audit
WHERE tenant_id = $1 AND audit_id < $2 AND ($4::text IS NULL OR subject = $4) AND ($5::text IS NULL OR actor = $5)
  AND ($6::text[] IS NULL OR action = ANY ($6))
ORDER BY audit_id DESC LIMIT $3;
