-- Days of history and output that were written to the archive, each before its partition is dropped. A day is `written` once
-- all its files are stored and verified, `dropped` when they are the only copy, and `restored` while a partition has them again.
CREATE TABLE archive_days (
    parent          text COLLATE "C" NOT NULL CHECK (parent IN ('history', 'log_chunks')),
    day             date NOT NULL,
    state           text COLLATE "C" NOT NULL DEFAULT 'writing'
        CHECK (state IN ('writing', 'written', 'dropped', 'restored')),
    write_id        uuid NOT NULL,                  -- of the writer that may complete the day; it is part of the names
    started_at      timestamptz NOT NULL DEFAULT db_now(),
    written_at      timestamptz,
    dropped_at      timestamptz,
    restored_until  timestamptz,                    -- then the partition is dropped again
    error           text,                           -- why the last attempt failed
    PRIMARY KEY (parent, day),
    CHECK ((state = 'writing') = (written_at IS NULL)),
    CHECK (state <> 'dropped' OR dropped_at IS NOT NULL),
    CHECK ((state = 'restored') = (restored_until IS NOT NULL))
);

-- The files of a day: each has rows of one tenant and one table.
CREATE TABLE archives (
    name        text COLLATE "C" PRIMARY KEY,       -- in the archive store
    parent      text COLLATE "C" NOT NULL,
    day         date NOT NULL,
    tenant_id   int NOT NULL,
    content     text COLLATE "C" NOT NULL CHECK (content IN ('history', 'attempts', 'log_chunks')),
    rows        bigint NOT NULL CHECK (rows > 0),
    bytes       bigint NOT NULL CHECK (bytes > 0),
    sha256      bytea NOT NULL,
    first_id    uuid NOT NULL,                      -- the lowest and the highest execution
    last_id     uuid NOT NULL,
    jobs        bytea,                              -- Bloom filter of the jobs in a file of history
    is_only_copy boolean NOT NULL DEFAULT false,    -- the partition of the day is gone
    FOREIGN KEY (parent, day) REFERENCES archive_days ON DELETE CASCADE
);
CREATE INDEX archives_of_tenant ON archives (tenant_id, content, last_id) WHERE is_only_copy;
CREATE INDEX archives_of_day ON archives (parent, day);

-- Microseconds since 1970, as archives store instants; infinity is the largest number.
CREATE FUNCTION epoch_us(at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN at IS NULL THEN NULL WHEN isfinite(at) THEN (extract(epoch FROM at) * 1000000)::bigint
                ELSE 9223372036854775807 END
$$;
CREATE FUNCTION instant_of_us(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN us IS NULL THEN NULL WHEN us = 9223372036854775807 THEN 'infinity'::timestamptz
                ELSE '1970-01-01 00:00+00'::timestamptz + us * interval '1 microsecond' END
$$;

-- Drops the partition of a day if every row of it is in the archive; with it the attempts of its executions. Returns
-- `dropped`, or why not: `outdated` (another writer has the day), `changed` (other rows than the archive has), `absent`.
CREATE FUNCTION drop_archived(parent text, day date, writer uuid) RETURNS text LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    part text := parent || to_char(day, '_YYYYMMDD');
    differs boolean;
BEGIN
    IF parent IS NULL OR parent NOT IN ('history', 'log_chunks') OR day IS NULL THEN
        RAISE EXCEPTION 'parent must be history or log_chunks';
    END IF;
    PERFORM FROM archive_days d
    WHERE d.parent = drop_archived.parent AND d.day = drop_archived.day AND d.write_id = writer
      AND (d.state = 'written' OR d.state = 'restored' AND d.restored_until < db_now())
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'outdated';
    ELSIF to_regclass(part) IS NULL THEN
        RETURN 'absent';
    END IF;
    EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE', part);
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM (SELECT tenant_id, count(*) AS n FROM %I GROUP BY tenant_id) p
                        FULL JOIN (SELECT tenant_id, sum(rows) AS n FROM archives a
                                   WHERE a.parent = $1 AND a.content = $1 AND a.day = $2 GROUP BY tenant_id) a
                        USING (tenant_id) JOIN tenants t USING (tenant_id)
                        WHERE t.deleted_at IS NULL AND p.n IS DISTINCT FROM a.n)', part)
        INTO differs USING parent, day;
    IF differs THEN
        RETURN 'changed';
    END IF;
    IF parent = 'history' THEN
        EXECUTE format('DELETE FROM attempts a USING %I h WHERE a.execution_id = h.execution_id', part);
    END IF;
    EXECUTE format('DROP TABLE %I', part);
    UPDATE archives f SET is_only_copy = true WHERE f.parent = drop_archived.parent AND f.day = drop_archived.day;
    UPDATE archive_days d SET state = 'dropped', dropped_at = db_now(), restored_until = NULL, error = NULL
    WHERE d.parent = drop_archived.parent AND d.day = drop_archived.day;
    RETURN 'dropped';
END $$;
REVOKE ALL ON FUNCTION drop_archived(text, date, uuid) FROM PUBLIC;

-- The restore of a day, by the owner of the schema in one transaction: a table for the rows of files, as text; the partition,
-- which is attached when it is complete; the rows.
CREATE FUNCTION create_restored_rows(columns text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DROP TABLE IF EXISTS restored_rows;
    EXECUTE 'CREATE TEMP TABLE restored_rows ('
        || (SELECT string_agg(format('%I text', name), ', ' ORDER BY place) FROM unnest(columns) WITH ORDINALITY u (name, place))
        || ') ON COMMIT DROP';
END $$;

CREATE FUNCTION create_restored_partition(parent text, day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text := parent || to_char(day, '_YYYYMMDD');
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
    EXECUTE format('CREATE TRIGGER never_truncated BEFORE TRUNCATE ON %I EXECUTE FUNCTION refuse_change()', part);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
END $$;

CREATE FUNCTION restore_rows(content text, day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text := content || to_char(day, '_YYYYMMDD');
BEGIN
    CASE content
    WHEN 'attempts' THEN
        INSERT INTO attempts (execution_id, attempt, tenant_id, session_id, outcome, exit_code, error, started_at, ended_at,
                              due_at, queued_at, duration_ms)
        SELECT execution_id::uuid, attempt::smallint, tenant_id::int, session_id::uuid, outcome, exit_code::int, error,
               instant_of_us(started_at::bigint), instant_of_us(ended_at::bigint), instant_of_us(due_at::bigint),
               instant_of_us(queued_at::bigint), duration_ms::int
        FROM restored_rows ON CONFLICT DO NOTHING;
    WHEN 'history' THEN
        EXECUTE format('
            INSERT INTO %I (execution_id, job_id, tenant_id, version, exit_code, duration_ms, fires, priority, attempt, state,
                            trigger, queue, fire_at, due_at, queued_at, started_at, finished_at, session_id, reason, error,
                            result, params, created_by, backfill_id)
            SELECT execution_id::uuid, job_id::uuid, tenant_id::int, version::int, exit_code::int, duration_ms::int, fires::int,
                   priority::smallint, attempt::smallint, state, trigger, queue, instant_of_us(fire_at::bigint),
                   instant_of_us(due_at::bigint), instant_of_us(queued_at::bigint), instant_of_us(started_at::bigint),
                   instant_of_us(finished_at::bigint), session_id::uuid, reason, error, result::jsonb, params::jsonb,
                   created_by, backfill_id::uuid
            FROM restored_rows', part);
    WHEN 'log_chunks' THEN
        EXECUTE format('
            INSERT INTO %I (execution_id, attempt, seq, tenant_id, stream, data, started_at, received_at)
            SELECT execution_id::uuid, attempt::smallint, seq::int, tenant_id::int, stream, decode(data, ''hex''),
                   instant_of_us(started_at::bigint), instant_of_us(received_at::bigint)
            FROM restored_rows', part);
    END CASE;
END $$;

CREATE FUNCTION attach_restored_partition(parent text, day date, keep_s float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part text := parent || to_char(day, '_YYYYMMDD');
BEGIN
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                   parent, part, day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
    UPDATE archives f SET is_only_copy = false WHERE f.parent = attach_restored_partition.parent
        AND f.day = attach_restored_partition.day;
    UPDATE archive_days d SET state = 'restored', restored_until = db_now() + make_interval(secs => keep_s)
    WHERE d.parent = attach_restored_partition.parent AND d.day = attach_restored_partition.day AND d.state = 'dropped';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the day is not archived only';
    END IF;
END $$;
REVOKE ALL ON FUNCTION create_restored_rows(text[]), create_restored_partition(text, date), restore_rows(text, date),
    attach_restored_partition(text, date, float8) FROM PUBLIC;

-- The privileges of a kind of role on a table or view. A new table of tenants needs no line here.
CREATE OR REPLACE FUNCTION wanted_privileges(kind text, relation text, has_tenant boolean) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN relation IN ('migrations', 'all_executions') THEN '{SELECT}'
        WHEN relation IN ('database_roles', 'submitting_roles') THEN
            CASE kind WHEN 'server' THEN '{SELECT}' ELSE '{}' END
        WHEN relation IN ('audit', 'history', 'log_chunks', 'job_versions', 'workflow_versions', 'calendar_versions')
            THEN '{SELECT,INSERT}'
        WHEN relation = 'attempts' THEN CASE kind WHEN 'server' THEN '{SELECT,INSERT,DELETE}' ELSE '{SELECT,INSERT}' END
        WHEN kind = 'server' THEN '{SELECT,INSERT,UPDATE,DELETE}'
        WHEN relation IN ('tenants', 'schedulers', 'measurements', 'holds', 'queue_sample_times', 'rollup_progress',
                          'archives') THEN '{SELECT}'
        WHEN relation = 'schedules' THEN '{SELECT,INSERT}'
        WHEN relation = 'shards' THEN '{SELECT}'  -- and columns, see below
        WHEN has_tenant THEN '{SELECT,INSERT,UPDATE,DELETE}'
        ELSE '{}'
    END::text[]
$$;

-- Makes a role one that servers connect with. `mainspring db migrate` calls it, and protect_table for every table.
CREATE OR REPLACE FUNCTION grant_role(role name, kind text) RETURNS void LANGUAGE plpgsql SET search_path = mainspring, pg_temp AS $$
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
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_partitions(int), drop_partition(text, date),
                        drop_archived(text, date, uuid) TO %I', grant_role.role);
    END IF;
END $$;

DO $$
DECLARE
    known database_roles%ROWTYPE;
BEGIN
    FOR known IN SELECT d.* FROM database_roles d JOIN pg_roles r ON r.rolname = d.role WHERE d.kind = 'server' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION drop_archived(text, date, uuid) TO %I', known.role);
    END LOOP;
END $$;
