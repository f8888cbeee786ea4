-- name: applied_marks
-- What was last applied under these kinds and names, without the content.
SELECT m.kind, m.name, m.owner, m.digest, m.object_id, m.version
FROM unnest($2::text[], $3::text[]) AS w (kind, name)
JOIN applied_manifests m ON m.tenant_id = $1 AND m.kind = w.kind COLLATE "C" AND m.name = w.name COLLATE "C";

-- name: applied_contents
-- The fields that were last applied under these kinds and names.
SELECT m.kind, m.name, m.content
FROM unnest($2::text[], $3::text[]) AS w (kind, name)
JOIN applied_manifests m ON m.tenant_id = $1 AND m.kind = w.kind COLLATE "C" AND m.name = w.name COLLATE "C";

-- name: owned_manifests
-- What an owner has applied.
SELECT kind, name, object_id FROM applied_manifests WHERE tenant_id = $1 AND owner = $2 ORDER BY kind, name LIMIT $3;

-- name: applied_names
-- The names of applied objects of a kind, by the id of the object.
SELECT object_id, name FROM applied_manifests WHERE tenant_id = $1 AND kind = $2 AND object_id IS NOT NULL;

-- name: write_applied
-- Records what was applied. Checks the owner: another owner's record changes only if the caller takes it over ($3).
INSERT INTO applied_manifests AS m
    (tenant_id, owner, kind, name, content, digest, object_id, version, applied_by)
SELECT $1, $2, w.kind, w.name, w.content, w.digest, w.object_id, w.version, $4
FROM unnest($5::text[], $6::text[], $7::jsonb[], $8::bytea[], $9::uuid[], $10::int[])
    AS w (kind, name, content, digest, object_id, version)
ON CONFLICT (tenant_id, kind, name) DO UPDATE
SET owner = excluded.owner, content = excluded.content, digest = excluded.digest, object_id = excluded.object_id,
    version = excluded.version, applied_at = db_now(), applied_by = excluded.applied_by
WHERE m.owner = excluded.owner OR $3
RETURNING m.kind, m.name;

-- name: forget_applied
-- Forgets objects that were pruned.
DELETE FROM applied_manifests m USING unnest($3::text[], $4::text[]) AS w (kind, name)
WHERE m.tenant_id = $1 AND m.owner = $2 AND m.kind = w.kind COLLATE "C" AND m.name = w.name COLLATE "C";
