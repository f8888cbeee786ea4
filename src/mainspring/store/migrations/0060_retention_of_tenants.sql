-- Retention of finished executions by tenant, shorter than that of the server.

ALTER TABLE tenants ADD COLUMN keep_history_s float8
    CONSTRAINT tenants_keep_history CHECK (keep_history_s >= 86400);  -- null: as long as the server keeps it

-- How far the history of a tenant with a shorter retention is deleted: nothing of it is left before `day`, and of that day
-- nothing up to `execution_id`.
CREATE TABLE tenant_retention (
    tenant_id     int PRIMARY KEY REFERENCES tenants,
    day           date NOT NULL,
    execution_id  uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50);

-- Examines the next `most` executions of a day that has expired for a tenant, deletes those of the tenant, and moves its
-- progress; returns how many were deleted, or null if no day has expired. Servers may not delete history themselves; this
-- runs as the owner, and only what the tenant's own retention says can go.
CREATE FUNCTION forget_history(tenant int, most int) RETURNS int LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
DECLARE
    progress tenant_retention%ROWTYPE;
    expired date;
    part text;
    last uuid;
    deleted int;
BEGIN
    IF most IS NULL OR most NOT BETWEEN 1 AND 100000 THEN
        RAISE EXCEPTION 'most must be 1 to 100000';
    END IF;
    SELECT ((db_now() - make_interval(secs => t.keep_history_s)) AT TIME ZONE 'UTC')::date INTO expired
    FROM tenants t WHERE t.tenant_id = forget_history.tenant AND t.keep_history_s IS NOT NULL;
    IF expired IS NULL THEN
        RETURN NULL;
    END IF;
    -- The oldest day that is stored; without one, there is nothing to delete.
    INSERT INTO tenant_retention (tenant_id, day)
    SELECT forget_history.tenant, min(to_date(right(c.relname, 8), 'YYYYMMDD'))
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'history'::regclass AND c.relname ~ '^history_[0-9]{8}$'
    HAVING count(*) > 0
    ON CONFLICT (tenant_id) DO NOTHING;
    SELECT * INTO progress FROM tenant_retention r WHERE r.tenant_id = forget_history.tenant FOR UPDATE;
    IF progress.day IS NULL OR progress.day >= expired THEN
        RETURN NULL;
    END IF;
    part := 'history_' || to_char(progress.day, 'YYYYMMDD');
    IF to_regclass(part) IS NULL THEN
        UPDATE tenant_retention r SET day = progress.day + 1, execution_id = DEFAULT
        WHERE r.tenant_id = forget_history.tenant;
        RETURN 0;
    END IF;
    -- A bounded number of rows is read, whichever tenant they belong to: no statement scans a day.
    EXECUTE format($delete$
        WITH next AS MATERIALIZED (
            SELECT execution_id, finished_at, tenant_id FROM %1$I WHERE execution_id > $1 ORDER BY execution_id LIMIT $2
        ), gone AS (
            DELETE FROM %1$I h USING next n
            WHERE n.tenant_id = $3 AND h.execution_id = n.execution_id AND h.finished_at = n.finished_at
            RETURNING h.execution_id
        ), without_attempts AS (
            DELETE FROM attempts a USING gone g WHERE a.execution_id = g.execution_id
        )
        SELECT (SELECT execution_id FROM next ORDER BY execution_id DESC LIMIT 1), (SELECT count(*) FROM gone)
        $delete$, part) INTO last, deleted USING progress.execution_id, most, forget_history.tenant;
    IF last IS NULL THEN
        UPDATE tenant_retention r SET day = progress.day + 1, execution_id = DEFAULT
        WHERE r.tenant_id = forget_history.tenant;
    ELSE
        UPDATE tenant_retention r SET execution_id = last WHERE r.tenant_id = forget_history.tenant;
    END IF;
    RETURN deleted;
END $$;
