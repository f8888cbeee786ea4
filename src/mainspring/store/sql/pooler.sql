-- name: backend_pid
-- The process that serves this connection.
SELECT pg_backend_pid();

-- name: mark_session
-- Leaves a mark in the session of this connection.
SELECT set_config('mainspring.session', $1, false);

-- name: session_mark
-- The mark in the session of this connection.
SELECT current_setting('mainspring.session', true);

-- name: role_settings
-- Defaults of a role in this database, as `name=value`.
SELECT s.setconfig FROM pg_db_role_setting s
WHERE s.setrole = (SELECT oid FROM pg_roles WHERE rolname = $1)
  AND s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: set_role_setting
-- The statement that makes $2 = $3 a default of a role in this database.
SELECT format('ALTER ROLE %I IN DATABASE %I SET %I = %L', $1::text, current_database(), $2::text, $3::text);

-- name: pooled_search_path
-- The search path of this connection.
SELECT current_setting('search_path');
