-- The users and tokens that issued a token, or a token in the chain of those that issued it: for approvals, each of them may
-- have acted with it. `issued_by`: the name of the nearest.
ALTER TABLE tokens ADD COLUMN issuers uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE tokens ADD COLUMN issued_by text;
ALTER TABLE step_approvals ADD COLUMN issuers uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE duration_requests ADD COLUMN issuers uuid[] NOT NULL DEFAULT '{}';

-- Tokens of earlier versions: `created_by` ends with the first digits of the issuer's id, in brackets.
WITH RECURSIVE chain AS (
    SELECT t.token_id, t.tenant_id, coalesce(t.delegated_by, t.principal_id, t.token_id) AS own, NULL::uuid AS issuer,
           t.created_by, 0 AS n
    FROM tokens t WHERE t.created_by LIKE '%]'
    UNION ALL
    SELECT c.token_id, c.tenant_id, c.own, i.person, i.created_by, c.n + 1
    FROM chain c CROSS JOIN LATERAL (
        SELECT coalesce(i.delegated_by, i.principal_id, i.token_id) AS person, i.created_by FROM tokens i
        WHERE i.tenant_id = c.tenant_id AND left(i.token_id::text, 8) = substring(c.created_by FROM '\[([0-9a-f]{8})\]$')
        UNION ALL
        SELECT p.principal_id, NULL FROM principals p
        WHERE p.tenant_id = c.tenant_id AND p.issuer IS NOT NULL
          AND left(p.principal_id::text, 8) = substring(c.created_by FROM '\[([0-9a-f]{8})\]$')
    ) AS i
    WHERE c.n < 32 AND c.created_by LIKE '%]'
)
UPDATE tokens t SET issuers = f.issuers, issued_by = t.created_by
FROM (SELECT token_id, array_agg(DISTINCT issuer) AS issuers FROM chain WHERE issuer <> own GROUP BY token_id) AS f
WHERE f.token_id = t.token_id;
