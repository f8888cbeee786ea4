-- name: system_facts
-- Version, size, age and connections of the database.
SELECT current_setting('server_version') AS version, pg_database_size(current_database()) AS bytes,
       pg_postmaster_start_time() AS started_at, db_now() AS now,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections,
       current_setting('max_connections')::int AS most_connections,
       (SELECT max(age(datfrozenxid)) FROM pg_database WHERE datname = current_database()) AS transaction_age;

-- name: table_sizes
-- The largest tables with their indexes; partitions are summed.
SELECT coalesce(parent.relname, c.relname) AS name, count(*) AS parts, sum(pg_total_relation_size(c.oid))::bigint AS bytes,
       sum(greatest(c.reltuples, 0))::bigint AS rows
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
WHERE c.relkind = 'r' AND s.nspname = current_schema()
GROUP BY 1 ORDER BY 3 DESC LIMIT $1;

-- name: process_figures
-- Measurements of processes in the last minute.
SELECT name, measured_at, figures FROM measurements
WHERE measured_at > (SELECT db_now()) - interval '1 minute' ORDER BY name;

-- name: database_fitness
-- What a server needs to know of a database before it uses it. Works before any migration.
SELECT current_setting('server_version_num')::int AS version, current_setting('server_version') AS server_version,
       pg_is_in_recovery() AS is_standby, current_setting('synchronous_commit') AS synchronous_commit,
       has_database_privilege(current_database(), 'CREATE') AS may_create;

-- name: table_upkeep
-- Size, dead rows and last vacuum of each table, partitions summed, the largest first.
SELECT coalesce(parent.relname, c.relname) AS name, count(*) AS parts, sum(pg_total_relation_size(c.oid))::bigint AS bytes,
       sum(greatest(c.reltuples, 0))::bigint AS rows, coalesce(sum(t.n_dead_tup), 0)::bigint AS dead_rows,
       max(greatest(t.last_vacuum, t.last_autovacuum)) AS vacuumed_at
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
LEFT JOIN pg_stat_user_tables t ON t.relid = c.oid
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class parent ON parent.oid = i.inhparent
WHERE c.relkind = 'r' AND s.nspname = current_schema()
GROUP BY 1 ORDER BY 3 DESC;

-- name: oldest_transaction
-- The oldest open transaction of this database: rows that died after it began cannot be removed.
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8 AS age_s
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();

-- name: current_timeline
-- The timeline that this server writes on: it grows with every promotion. 0: it is a standby.
SELECT CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END;
