-- name: create
-- Creates the roles and the database of Mainspring in single-user mode: one statement per line.
CREATE ROLE mainspring LOGIN CREATEDB CREATEROLE PASSWORD '{password}'
CREATE ROLE mainspring_server LOGIN PASSWORD '{server_password}'
CREATE ROLE mainspring_tenant LOGIN PASSWORD '{tenant_password}'
GRANT pg_monitor, pg_signal_backend TO mainspring
GRANT pg_monitor TO mainspring_server
CREATE DATABASE mainspring OWNER mainspring

-- name: set_passwords
-- Sets new passwords for a cluster without password files, or with those of an earlier version, which had fewer roles.
DO $$ BEGIN IF to_regrole('mainspring_server') IS NULL THEN CREATE ROLE mainspring_server; GRANT pg_monitor TO mainspring_server; END IF; END $$
DO $$ BEGIN IF to_regrole('mainspring_tenant') IS NULL THEN CREATE ROLE mainspring_tenant; END IF; END $$
ALTER ROLE mainspring PASSWORD '{password}'
ALTER ROLE mainspring_server LOGIN PASSWORD '{server_password}'
ALTER ROLE mainspring_tenant LOGIN PASSWORD '{tenant_password}'
ALTER ROLE postgres PASSWORD '{superuser_password}'
