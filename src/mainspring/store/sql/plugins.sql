-- name: upsert_plugins
-- Stores the settings schemas of a worker's plug-ins; the latest wins, and an unchanged one writes nothing.
INSERT INTO plugins (tenant_id, type, schema, shared)
SELECT $1, p.type, p.schema, $4 FROM unnest($2::text[], $3::jsonb[]) AS p (type, schema) ORDER BY p.type
ON CONFLICT (tenant_id, type) DO UPDATE
SET schema = EXCLUDED.schema, shared = EXCLUDED.shared, updated_at = db_now()
WHERE (plugins.schema, plugins.shared) IS DISTINCT FROM (EXCLUDED.schema, EXCLUDED.shared);

-- name: plugin_schema
-- The settings schema of a type: registered by a worker of the tenant, else by a shared one.
SELECT schema FROM plugins WHERE type = $2 AND (tenant_id = $1 OR shared) ORDER BY (tenant_id = $1) DESC LIMIT 1;

-- name: list_plugins
-- Every plug-in type that a tenant's jobs may use, with its schema.
SELECT DISTINCT ON (type) type, schema FROM plugins WHERE tenant_id = $1 OR shared
ORDER BY type, (tenant_id = $1) DESC LIMIT $2;
