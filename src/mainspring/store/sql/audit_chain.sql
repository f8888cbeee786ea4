-- name: pending_chains
-- Chains that have entries to chain.
SELECT DISTINCT tenant_id FROM (SELECT tenant_id FROM audit_pending ORDER BY audit_id LIMIT 5000) AS first;

-- name: lock_chain
-- Locks a chain, so that only one process adds to it; returns its last entry. A new chain has none.
INSERT INTO audit_chains (tenant_id, seq, hash) VALUES ($1, 0, $2)
ON CONFLICT (tenant_id) DO UPDATE SET seq = audit_chains.seq RETURNING seq, hash;

-- name: pending_entries
-- The oldest entries of a chain that are not chained.
SELECT a.* FROM audit_pending p JOIN audit a USING (audit_id) WHERE p.tenant_id = $1 ORDER BY p.audit_id LIMIT $2;

-- name: extend_chain
-- Adds entries behind the one that the caller has locked ($2), and removes them from the pending ones.
WITH moved AS (
    UPDATE audit_chains SET seq = $3, hash = $4 WHERE tenant_id = $1 AND seq = $2 RETURNING tenant_id
), done AS (
    DELETE FROM audit_pending p USING moved WHERE p.tenant_id = moved.tenant_id AND p.audit_id = ANY ($5::bigint[])
)
INSERT INTO audit_chain (tenant_id, seq, audit_id, previous, hash)
SELECT moved.tenant_id, $2 + e.n, e.audit_id, e.previous, e.hash
FROM moved, unnest($5::bigint[], $6::bytea[], $7::bytea[]) WITH ORDINALITY AS e (audit_id, previous, hash, n)
RETURNING seq;

-- name: chain_head
-- The last entry of a chain, as it was recorded when it was chained.
SELECT seq, hash FROM audit_chains WHERE tenant_id = $1;

-- name: chain_hash
-- The hash of one entry of a chain.
SELECT hash FROM audit_chain WHERE tenant_id = $1 AND seq = $2;

-- name: chain_page
-- Entries of a chain behind one of them, in order, with their content.
SELECT c.seq, c.audit_id AS chained_id, c.previous, c.hash, a.*
FROM audit_chain c LEFT JOIN audit a ON a.audit_id = c.audit_id
WHERE c.tenant_id = $1 AND c.seq > $2 ORDER BY c.seq LIMIT $3;

-- name: stray_entries
-- The last of the next $3 entries of a tenant behind $2, and the first of them that is neither chained nor to be chained.
WITH part AS MATERIALIZED (
    SELECT audit_id FROM audit WHERE tenant_id = $1 AND audit_id > $2 ORDER BY audit_id LIMIT $3
)
SELECT max(audit_id) AS last, min(audit_id) FILTER (
    WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.audit_id = part.audit_id AND c.tenant_id = $1)
      AND NOT EXISTS (SELECT FROM audit_pending p WHERE p.audit_id = part.audit_id AND p.tenant_id = $1)
) AS stray FROM part;

-- name: pending_facts
-- How many entries of a chain are not chained, and the first of them that no longer exists.
SELECT count(*) AS entries, min(p.audit_id) FILTER (WHERE a.audit_id IS NULL) AS removed
FROM audit_pending p LEFT JOIN audit a USING (audit_id) WHERE p.tenant_id = $1;

-- name: list_heads
-- Signed heads of a chain, oldest first.
SELECT seq, hash, key_id, signature, signed_at FROM audit_heads WHERE tenant_id = $1 ORDER BY seq, signed_at;

-- name: unsigned_chains
-- Chains whose last entry is not signed with this master key.
SELECT c.tenant_id, c.seq, c.hash FROM audit_chains c
WHERE c.seq > 0 AND NOT EXISTS (SELECT FROM audit_heads h WHERE h.tenant_id = c.tenant_id AND h.seq = c.seq AND h.key_id = $1)
ORDER BY c.tenant_id LIMIT $2;

-- name: insert_head
-- Writes a signed head, and deletes all but the newest $6 of its chain.
WITH old AS (
    SELECT seq FROM audit_heads WHERE tenant_id = $1 ORDER BY seq DESC OFFSET $6 LIMIT 1
), gone AS (
    DELETE FROM audit_heads h USING old WHERE h.tenant_id = $1 AND h.seq <= old.seq
)
INSERT INTO audit_heads (tenant_id, seq, hash, key_id, signature) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING;

-- name: heads_to_send
-- The newest head of each chain of which none was sent for $1 seconds, if a channel subscribes to heads. The heads of the
-- cluster go to the channels of the first tenant.
SELECT DISTINCT ON (h.tenant_id) h.tenant_id, h.seq, h.hash, h.key_id, h.signature, h.signed_at
FROM channels c JOIN audit_heads h ON h.tenant_id = c.tenant_id OR (h.tenant_id = 0 AND c.tenant_id = 1)
WHERE 'audit.head' = ANY (c.events) AND c.disabled_at IS NULL
  AND NOT EXISTS (SELECT FROM audit_heads s WHERE s.tenant_id = h.tenant_id
                  AND (s.sent_at > (SELECT db_now()) - make_interval(secs => $1) OR (s.sent_at IS NOT NULL AND s.seq >= h.seq)))
ORDER BY h.tenant_id, h.seq DESC;

-- name: head_sent
-- Marks a head as written to the outbox, if no other process has.
UPDATE audit_heads SET sent_at = db_now()
WHERE tenant_id = $1 AND seq = $2 AND key_id = $3 AND sent_at IS NULL RETURNING seq;
