-- How many slots of a concurrency key are taken, as of now: being VOLATILE, it sees what was committed before it is
-- called, also by whoever held the key's row until then. So a claim can lock, count and claim in one statement.
CREATE FUNCTION holders_now(key bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT count(*) FROM executions e WHERE e.limit_id = key AND e.session_id IS NOT NULL);
END
$$;

-- All that is asked of executions in bulk has pinned plans; a drain of hundreds of thousands spent a twentieth of
-- PostgreSQL's time on samples of 30,000 rows.
ALTER TABLE executions
    ALTER COLUMN execution_id SET STATISTICS 20,
    ALTER COLUMN job_id SET STATISTICS 20,
    ALTER COLUMN tenant_id SET STATISTICS 20,
    ALTER COLUMN version SET STATISTICS 20,
    ALTER COLUMN shard SET STATISTICS 20,
    ALTER COLUMN priority SET STATISTICS 20,
    ALTER COLUMN chained SET STATISTICS 20,
    ALTER COLUMN attempt SET STATISTICS 20,
    ALTER COLUMN failures SET STATISTICS 20,
    ALTER COLUMN lost SET STATISTICS 20,
    ALTER COLUMN state SET STATISTICS 20,
    ALTER COLUMN trigger SET STATISTICS 20,
    ALTER COLUMN queue SET STATISTICS 20,
    ALTER COLUMN rank SET STATISTICS 20,
    ALTER COLUMN fire_at SET STATISTICS 20,
    ALTER COLUMN due_at SET STATISTICS 20,
    ALTER COLUMN queued_at SET STATISTICS 20,
    ALTER COLUMN started_at SET STATISTICS 20,
    ALTER COLUMN session_id SET STATISTICS 20,
    ALTER COLUMN cancel_at SET STATISTICS 20,
    ALTER COLUMN cancel_reason SET STATISTICS 20,
    ALTER COLUMN params SET STATISTICS 20,
    ALTER COLUMN created_by SET STATISTICS 20,
    ALTER COLUMN start_by_at SET STATISTICS 20,
    ALTER COLUMN backfill_id SET STATISTICS 20,
    ALTER COLUMN line_id SET STATISTICS 20,
    ALTER COLUMN limit_id SET STATISTICS 20,
    ALTER COLUMN needs_by_at SET STATISTICS 20;
