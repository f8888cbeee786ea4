-- Jobs by the beginning of their names, in an order that is the same on every server: what a prefix matches is a range.
CREATE INDEX jobs_prefix ON jobs (tenant_id, name COLLATE "C") WHERE deleted_at IS NULL;

-- Drops the oldest daily partition before a day, if there is one; returns its name. One at a time, so that the lock on the
-- parent is short, and not at all while somebody keeps it busy: there is a next time.
CREATE FUNCTION drop_partition(parent text, before date) RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    part text;
BEGIN
    SELECT c.relname INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = parent::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
      AND right(c.relname, 8) < to_char(before, 'YYYYMMDD')
    ORDER BY c.relname LIMIT 1;
    IF part IS NOT NULL THEN
        EXECUTE format('DROP TABLE %I', part);
    END IF;
    RETURN part;
END $$;
