-- name: wal_position
-- The end of the WAL of the primary, which includes every acknowledged commit, in bytes.
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn;

-- name: replay_position
-- Whether this server is a standby, and how much of the WAL it has replayed, in bytes.
SELECT pg_is_in_recovery() AS is_standby, coalesce(pg_last_wal_replay_lsn() - '0/0'::pg_lsn, 0) AS replayed;
