-- part: secret_columns
s.*, (SELECT t.name FROM tenants t WHERE t.tenant_id = s.tenant_id) AS tenant_name

-- name: list_secrets
-- A tenant's secrets by name after $2, without values; with $4 one of them.
SELECT <<secret_columns>> FROM secrets s
WHERE tenant_id = $1 AND name > $2::text COLLATE "C" AND ($4::text IS NULL OR name = $4::text COLLATE "C")
ORDER BY name LIMIT $3;

-- name: secrets_by_name
-- The secrets among these names, with their envelopes.
SELECT <<secret_columns>> FROM secrets s WHERE tenant_id = $1 AND name = ANY ($2::text[]);

-- name: lock_secret
-- Locks a secret before it is replaced.
SELECT <<secret_columns>> FROM secrets s WHERE tenant_id = $1 AND name = $2 FOR UPDATE;

-- name: insert_secret
-- Inserts the first version of a secret.
INSERT INTO secrets (tenant_id, name, version, description, jobs, queues, hosts, channels, triggers, provider, path,
    key_id, envelope, created_by, updated_by)
VALUES ($1, $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13);

-- name: update_secret
-- Replaces a secret whose version is still the one that was read ($3); its new version is $4.
UPDATE secrets SET version = $4, description = $5, jobs = $6, queues = $7, hosts = $8, channels = $9, triggers = $10,
    provider = $11, path = $12, key_id = $13, envelope = $14, updated_by = $15, updated_at = db_now()
WHERE tenant_id = $1 AND name = $2 AND version = $3
RETURNING name;

-- name: delete_secret
-- Deletes a secret.
DELETE FROM secrets WHERE tenant_id = $1 AND name = $2 RETURNING name;

-- name: see_secrets_used
-- Notes the use of secrets, at most once a minute for each.
UPDATE secrets SET last_used_at = db_now()
WHERE tenant_id = $1 AND name = ANY ($2::text[])
  AND (last_used_at IS NULL OR last_used_at < db_now() - interval '1 minute');

-- name: count_by_key
-- How many values each master key protects, over all tenants: master keys belong to the installation.
SELECT key_id, count(*) AS count
FROM (SELECT key_id FROM secrets WHERE key_id IS NOT NULL
      UNION ALL SELECT key_id FROM channels WHERE key_id IS NOT NULL
      UNION ALL SELECT key_id FROM triggers WHERE key_id IS NOT NULL) AS every (key_id)
GROUP BY key_id;

-- name: secrets_under_other_keys
-- Some secrets whose data keys are not wrapped in this master key, over all tenants.
SELECT tenant_id, name, version, key_id, envelope FROM secrets
WHERE key_id IS NOT NULL AND key_id <> $1::text COLLATE "C"
ORDER BY tenant_id, name LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: rewrap_secrets
-- Replaces the wrapped data keys of secrets that still have the version and key that were read.
UPDATE secrets s SET key_id = $1, envelope = n.envelope
FROM unnest($2::int[], $3::text[], $4::int[], $5::text[], $6::bytea[]) AS n (tenant_id, name, version, key_id, envelope)
WHERE s.tenant_id = n.tenant_id AND s.name = n.name COLLATE "C" AND s.version = n.version
  AND s.key_id = n.key_id COLLATE "C";

-- name: running_attempt
-- What an attempt runs, if this session runs it now.
SELECT tenant_id, job_id, version, queue, params FROM executions
WHERE execution_id = $1 AND session_id = $2 AND attempt = $3 AND state = 'running';
