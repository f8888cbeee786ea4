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
