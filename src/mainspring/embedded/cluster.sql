-- name: create
-- Creates the role and the database of Mainspring in single-user mode: one statement per line.
CREATE ROLE mainspring LOGIN CREATEDB CREATEROLE PASSWORD '{password}'
GRANT pg_monitor, pg_signal_backend TO mainspring
CREATE DATABASE mainspring OWNER mainspring

-- name: set_passwords
-- Sets new passwords for a cluster without password files.
ALTER ROLE mainspring PASSWORD '{password}'
ALTER ROLE postgres PASSWORD '{superuser_password}'
