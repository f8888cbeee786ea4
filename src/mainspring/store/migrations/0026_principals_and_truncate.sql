-- The id of the token that made a change: names are chosen, ids are not. Null: the system, or an older entry.
ALTER TABLE audit ADD COLUMN actor_id uuid;
CREATE INDEX audit_actor_id ON audit (tenant_id, actor_id, audit_id) WHERE actor_id IS NOT NULL;

-- Append-only tables are not emptied either. Statement triggers are not inherited, so every partition has its own.
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON audit EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON attempts EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON history EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON log_chunks EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON job_versions EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON workflow_versions EXECUTE FUNCTION refuse_change();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON calendar_versions EXECUTE FUNCTION refuse_change();
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid::regclass FROM pg_inherits
                WHERE inhparent IN ('history'::regclass, 'log_chunks'::regclass) LOOP
        EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %s EXECUTE FUNCTION refuse_change()', part);
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION make_partitions(days int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    day date;
    parent text;
    part text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('mainspring:partitions'));
    FOR day IN SELECT (db_now() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, days) n LOOP
        FOREACH parent IN ARRAY ARRAY['history', 'log_chunks'] LOOP
            part := parent || to_char(day, '_YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            -- LIKE + ATTACH instead of PARTITION OF: the parent stays open for readers and writers.
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
            EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I EXECUTE FUNCTION refuse_change()', part);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           parent, part, day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
            RETURN NEXT part;
        END LOOP;
    END LOOP;
END $$;
