-- Row-level security: roles that own nothing, and policies that keep a tenant's connection to rows of that tenant. The
-- policies take effect for roles other than the owner; `mainspring db migrate` creates them, one table at a time.

-- Creates the daily partitions from today to `days` ahead; returns the names of the new ones. Servers, which own nothing,
-- create and drop partitions through these two functions only; both run as the owner of the schema.
CREATE OR REPLACE FUNCTION make_partitions(days int) RETURNS SETOF text LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
DECLARE
    day date;
    parent text;
    part text;
BEGIN
    IF days IS NULL OR days NOT BETWEEN 0 AND 366 THEN
        RAISE EXCEPTION 'days must be 0 to 366';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('mainspring:partitions'));
    FOR day IN SELECT (db_now() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, days) n LOOP
        FOREACH parent IN ARRAY ARRAY['history', 'log_chunks'] LOOP
            part := parent || to_char(day, '_YYYYMMDD');
            CONTINUE WHEN to_regclass(part) IS NOT NULL;
            -- LIKE + ATTACH instead of PARTITION OF: the parent stays open for readers and writers.
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
            EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I EXECUTE FUNCTION refuse_change()', part);
            EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           parent, part, day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
            RETURN NEXT part;
        END LOOP;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION make_partitions(int) FROM PUBLIC;

-- Drops the oldest daily partition before a day, if there is one; returns its name. One at a time, so that the lock on
-- the parent is short. Gives up if the lock is not free: the next round tries again.
CREATE OR REPLACE FUNCTION drop_partition(parent text, before date) RETURNS text LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    part text;
BEGIN
    IF parent IS NULL OR parent NOT IN ('history', 'log_chunks') THEN
        RAISE EXCEPTION 'parent must be history or log_chunks';
    ELSIF before IS NULL OR before > (db_now() AT TIME ZONE 'UTC')::date THEN
        RAISE EXCEPTION 'before must not be after today';
    END IF;
    SELECT c.relname INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = parent::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
      AND right(c.relname, 8) < to_char(before, 'YYYYMMDD')
    ORDER BY c.relname LIMIT 1;
    IF part IS NOT NULL THEN
        EXECUTE format('DROP TABLE %I', part);
    END IF;
    RETURN part;
END $$;
REVOKE ALL ON FUNCTION drop_partition(text, date) FROM PUBLIC;

-- A view has the rights of its owner, who sees all rows. PostgreSQL 14 cannot change that: tenant roles need 15.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 150000 THEN
        ALTER VIEW all_executions SET (security_invoker);
    END IF;
END $$;

-- Row-level security ----------------------------------------------------------------------------------

-- PostgreSQL roles that servers connect with. A `server` role works for all tenants: firing, claiming, settling,
-- retention. A `tenant` role sees and writes only rows of the tenant that its connection has set.
CREATE TABLE database_roles (
    role        name PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('server', 'tenant')),
    created_at  timestamptz NOT NULL DEFAULT db_now()
);

-- The tenant that this connection has set; null without one, so that it sees no row. Inlined into policies: a read of one
-- execution takes as long as without them. In a subquery, evaluated once per statement, it took 15 to 20 % longer.
CREATE FUNCTION current_tenant() RETURNS int LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT nullif(current_setting('mainspring.tenant', true), '')::int$$;

-- The privileges of a kind of role on a table or view. A new table of tenants needs no line here.
CREATE FUNCTION wanted_privileges(kind text, relation text, has_tenant boolean) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN relation IN ('migrations', 'all_executions') THEN '{SELECT}'
        WHEN relation IN ('database_roles', 'submitting_roles') THEN
            CASE kind WHEN 'server' THEN '{SELECT}' ELSE '{}' END
        WHEN relation IN ('audit', 'history', 'log_chunks', 'job_versions', 'workflow_versions', 'calendar_versions')
            THEN '{SELECT,INSERT}'
        WHEN relation = 'attempts' THEN CASE kind WHEN 'server' THEN '{SELECT,INSERT,DELETE}' ELSE '{SELECT,INSERT}' END
        WHEN kind = 'server' THEN '{SELECT,INSERT,UPDATE,DELETE}'
        WHEN relation IN ('tenants', 'schedulers', 'measurements', 'holds', 'queue_sample_times') THEN '{SELECT}'
        WHEN relation = 'schedules' THEN '{SELECT,INSERT}'
        WHEN relation = 'shards' THEN '{SELECT}'  -- and columns, see below
        WHEN has_tenant THEN '{SELECT,INSERT,UPDATE,DELETE}'
        ELSE '{}'
    END::text[]
$$;

-- Columns that a tenant role may update. Locking the row of a tenant, for its quotas, needs the right to update a column.
CREATE FUNCTION wanted_columns(kind text, relation text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN kind = 'tenant' THEN
        CASE relation WHEN 'shards' THEN 'changes, blackouts' WHEN 'tenants' THEN 'created_at, min_isolation' END END
$$;

-- Enables row-level security on a table with tenants, and gives the roles of servers their privileges and policies on any
-- table or view. Changes only what is missing; each table is a transaction of its own, so that its lock is short.
-- Partitions get no policy and no privilege: all roles but the owner reach them through their parent only.
CREATE FUNCTION protect_table(relation regclass) RETURNS void LANGUAGE plpgsql SET search_path = mainspring, pg_temp AS $$
DECLARE
    class pg_class%ROWTYPE;
    has_tenant boolean := EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attname = 'tenant_id');
    known database_roles%ROWTYPE;
    privilege text;
    wanted boolean;
BEGIN
    SELECT * INTO class FROM pg_class c WHERE c.oid = relation;
    IF has_tenant AND class.relkind IN ('r', 'p') THEN
        IF NOT class.relrowsecurity THEN
            EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
        END IF;
        IF NOT class.relispartition AND NOT EXISTS (
                SELECT FROM pg_policy p WHERE p.polrelid = relation AND p.polname = 'one_tenant') THEN
            EXECUTE format('CREATE POLICY one_tenant ON %s USING (tenant_id = current_tenant())', relation);
        END IF;
    END IF;
    IF class.relispartition THEN
        RETURN;
    END IF;
    FOR known IN SELECT d.* FROM database_roles d JOIN pg_roles r ON r.rolname = d.role LOOP
        IF has_tenant AND class.relkind IN ('r', 'p') AND known.kind = 'server' AND NOT EXISTS (
                SELECT FROM pg_policy p WHERE p.polrelid = relation AND p.polname = 'all_of_' || known.role) THEN
            EXECUTE format('CREATE POLICY %I ON %s TO %I USING (true)', 'all_of_' || known.role, relation, known.role);
        END IF;
        FOREACH privilege IN ARRAY '{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[] LOOP
            wanted := privilege = ANY (wanted_privileges(known.kind, class.relname, has_tenant));
            IF wanted IS DISTINCT FROM has_table_privilege(known.role, relation, privilege) THEN
                EXECUTE format(CASE WHEN wanted THEN 'GRANT %s ON %s TO %I' ELSE 'REVOKE %s ON %s FROM %I' END,
                               privilege, relation, known.role);
            END IF;
        END LOOP;
        IF wanted_columns(known.kind, class.relname) IS NOT NULL
                AND NOT has_any_column_privilege(known.role, relation, 'UPDATE') THEN
            EXECUTE format('GRANT UPDATE (%s) ON %s TO %I', wanted_columns(known.kind, class.relname), relation, known.role);
        END IF;
    END LOOP;
END $$;

-- Makes a role one that servers connect with. `mainspring db migrate` calls it, and protect_table for every table.
CREATE FUNCTION grant_role(role name, kind text) RETURNS void LANGUAGE plpgsql SET search_path = mainspring, pg_temp AS $$
DECLARE
    given pg_roles%ROWTYPE;
BEGIN
    SELECT * INTO given FROM pg_roles r WHERE r.rolname = grant_role.role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no role %', quote_ident(grant_role.role) USING ERRCODE = 'undefined_object';
    ELSIF given.rolsuper OR given.rolbypassrls
            OR pg_has_role(given.oid, (SELECT nspowner FROM pg_namespace WHERE nspname = 'mainspring'), 'MEMBER') THEN
        RAISE EXCEPTION 'the role % is a superuser, bypasses row-level security, or owns the schema mainspring',
            quote_ident(grant_role.role) USING ERRCODE = 'invalid_role_specification',
            HINT = 'name a role without these rights';
    END IF;
    INSERT INTO database_roles AS d (role, kind) VALUES (grant_role.role, grant_role.kind)
    ON CONFLICT ON CONSTRAINT database_roles_pkey DO NOTHING;
    IF (SELECT d.kind FROM database_roles d WHERE d.role = grant_role.role) <> grant_role.kind THEN
        RAISE EXCEPTION 'the role % serves as the other kind; use two roles', quote_ident(grant_role.role)
            USING ERRCODE = 'invalid_role_specification';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA mainspring TO %I', grant_role.role);
    IF grant_role.kind = 'server' THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_partitions(int), drop_partition(text, date) TO %I', grant_role.role);
    END IF;
END $$;

-- Every tenant sees what it may run on: shared workers, and the plug-ins that they have.
CREATE POLICY shared_sessions ON sessions FOR SELECT USING (shared);
CREATE POLICY shared_workers ON workers FOR SELECT
    USING (EXISTS (SELECT FROM sessions s WHERE s.worker_id = workers.worker_id AND s.shared));
CREATE POLICY shared_plugins ON plugins FOR SELECT USING (shared);
