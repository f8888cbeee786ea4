-- name: backup_facts
-- The time of a backup, the server, and up to where fires are decided in it.
SELECT db_now() AS taken_at, current_setting('server_version') AS server_version,
       (SELECT min(watermark) FROM shards) AS decided_upto;

-- name: export_snapshot
-- Lets pg_dump see what this transaction sees.
SELECT pg_export_snapshot();

-- name: backup_rows
-- Rows by table, to compare a restored database with. Tables that grow with history are left out: counting reads them.
SELECT 'tenants' AS name, count(*) AS rows FROM tenants UNION ALL SELECT 'tokens', count(*) FROM tokens
UNION ALL SELECT 'jobs', count(*) FROM jobs UNION ALL SELECT 'job_versions', count(*) FROM job_versions
UNION ALL SELECT 'executions', count(*) FROM executions UNION ALL SELECT 'runs', count(*) FROM runs
UNION ALL SELECT 'dead_letters', count(*) FROM dead_letters UNION ALL SELECT 'queues', count(*) FROM queues
UNION ALL SELECT 'calendars', count(*) FROM calendars UNION ALL SELECT 'channels', count(*) FROM channels;

-- name: owns_schema
-- Whether the role of this session owns the schema, which pg_dump needs: it locks every table.
SELECT pg_has_role(nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = 'mainspring';
