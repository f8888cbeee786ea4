-- Secret fields of channels and triggers, over all tenants: master keys belong to the installation.

-- part: is_plain
-- Whether a secret field is a value, and not a reference to a secret.
EXISTS (SELECT FROM jsonb_each(secrets) AS f (name, value)
        WHERE jsonb_typeof(f.value) = 'string' AND NOT starts_with(f.value #>> '{}', 'secret://'))

-- name: plain_channels
-- Some channels with secrets in plain text, over all tenants: those that no server has encrypted yet.
SELECT channel_id AS holder_id, tenant_id, name, secrets, key_id, envelope FROM channels
WHERE secrets <> '{}' AND <<is_plain>> ORDER BY channel_id LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: other_key_channels
-- Some channels whose data keys are not wrapped in this master key, over all tenants.
SELECT channel_id AS holder_id, tenant_id, name, secrets, key_id, envelope FROM channels
WHERE key_id IS NOT NULL AND key_id <> $1::text COLLATE "C" ORDER BY channel_id LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: seal_channels
-- Replaces the secret fields of channels that still have those that were read.
UPDATE channels t SET secrets = n.secrets, key_id = n.key_id, envelope = n.envelope
FROM unnest($1::uuid[], $2::jsonb[], $3::bytea[], $4::jsonb[], $5::text[], $6::bytea[])
    AS n (holder_id, old_secrets, old_envelope, secrets, key_id, envelope)
WHERE t.channel_id = n.holder_id AND t.secrets = n.old_secrets AND t.envelope IS NOT DISTINCT FROM n.old_envelope
RETURNING t.channel_id;

-- name: plain_triggers
-- Some triggers with secrets in plain text, over all tenants: those that no server has encrypted yet.
SELECT trigger_id AS holder_id, tenant_id, name, secrets, key_id, envelope FROM triggers
WHERE secrets <> '{}' AND <<is_plain>> ORDER BY trigger_id LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: other_key_triggers
-- Some triggers whose data keys are not wrapped in this master key, over all tenants.
SELECT trigger_id AS holder_id, tenant_id, name, secrets, key_id, envelope FROM triggers
WHERE key_id IS NOT NULL AND key_id <> $1::text COLLATE "C" ORDER BY trigger_id LIMIT $2 FOR UPDATE SKIP LOCKED;

-- name: seal_triggers
-- Replaces the secret fields of triggers that still have those that were read.
UPDATE triggers t SET secrets = n.secrets, key_id = n.key_id, envelope = n.envelope
FROM unnest($1::uuid[], $2::jsonb[], $3::bytea[], $4::jsonb[], $5::text[], $6::bytea[])
    AS n (holder_id, old_secrets, old_envelope, secrets, key_id, envelope)
WHERE t.trigger_id = n.holder_id AND t.secrets = n.old_secrets AND t.envelope IS NOT DISTINCT FROM n.old_envelope
RETURNING t.trigger_id;

-- name: count_plain
-- Channels and triggers with secrets in plain text; of one tenant ($1), or of all.
SELECT (SELECT count(*) FROM channels WHERE secrets <> '{}' AND ($1::int IS NULL OR tenant_id = $1) AND <<is_plain>>)
     + (SELECT count(*) FROM triggers WHERE secrets <> '{}' AND ($1::int IS NULL OR tenant_id = $1) AND <<is_plain>>);
