-- name: create
-- The role and the database of Mainspring; executed in single-user mode, one statement to a line.
CREATE ROLE mainspring LOGIN CREATEDB CREATEROLE PASSWORD '{password}'
GRANT pg_monitor, pg_signal_backend TO mainspring
CREATE DATABASE mainspring OWNER mainspring

-- name: set_passwords
-- For a cluster whose password files were lost.
ALTER ROLE mainspring PASSWORD '{password}'
ALTER ROLE postgres PASSWORD '{superuser_password}'
