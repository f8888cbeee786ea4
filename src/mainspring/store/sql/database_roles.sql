-- name: set_tenant
-- Sets the tenant whose rows the following statements of this connection see.
SELECT set_config('mainspring.tenant', $1, false);

-- name: unprotected_tables
-- Tables with tenants that have no row-level security yet.
SELECT c.oid::regclass::text AS name FROM pg_class c
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relrowsecurity
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id');

-- name: protected_relations
-- All tables and views, partitions after their parents.
SELECT c.oid::regclass::text AS name FROM pg_class c
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p', 'v') ORDER BY c.relispartition, c.relname;

-- name: protect_table
-- Creates the policies and privileges of a table or view that are missing.
SELECT protect_table($1::text::regclass);

-- name: grant_role
-- Makes $1 a role that servers connect with, of the kind $2.
SELECT grant_role($1, $2);

-- name: role_exists
-- Whether a role exists.
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1);

-- name: create_role_statement
-- The statement that creates a role with the password verifier $2.
SELECT format('CREATE ROLE %I LOGIN PASSWORD %L', $1::text, $2::text);

-- name: role_facts
-- The role of this connection, and whether row-level security applies to it.
SELECT session_user::text AS role, current_setting('server_version_num')::int AS version,
       r.rolsuper OR r.rolbypassrls AS bypasses,
       pg_has_role(r.oid, (SELECT nspowner FROM pg_namespace WHERE nspname = 'mainspring'), 'MEMBER') AS owns,
       has_schema_privilege(r.oid, 'mainspring', 'USAGE') AS uses
FROM pg_roles r WHERE r.rolname = session_user;

-- name: missing_grants
-- Privileges that a role of the kind $1 needs and the role of this connection lacks.
SELECT c.relname AS relation, privilege FROM pg_class c
CROSS JOIN LATERAL unnest(wanted_privileges($1, c.relname,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id'))) AS privilege
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
  AND NOT has_table_privilege(c.oid, privilege)
ORDER BY 1, 2;

-- name: sees_all_tenants
-- Whether every table with tenants shows this role all of them.
SELECT coalesce(bool_and(EXISTS (
    SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'all_of_' || session_user)), false)
FROM pg_class c
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id');
