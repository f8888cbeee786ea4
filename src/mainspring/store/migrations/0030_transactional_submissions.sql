-- PostgreSQL roles that may call `submit`, and the tenant whose jobs they submit. A role's name is compared with
-- session_user, which the caller cannot change, or is a group that the caller belongs to.
CREATE TABLE submitting_roles (
    role        name PRIMARY KEY,
    tenant_id   int NOT NULL REFERENCES tenants,
    created_at  timestamptz NOT NULL DEFAULT db_now()
);

-- Executions that clients have submitted in their own transactions. The leader moves them to `executions`.
CREATE TABLE submissions (
    execution_id  uuid PRIMARY KEY,
    tenant_id     int NOT NULL REFERENCES tenants,
    job_id        uuid NOT NULL,
    key           text COLLATE "C",
    at            timestamptz,                      -- as requested; null: due when it was submitted
    due_at        timestamptz NOT NULL,
    params        jsonb,
    created_by    text NOT NULL
);
CREATE UNIQUE INDEX submissions_key ON submissions (tenant_id, job_id, key) WHERE key IS NOT NULL;
CREATE SEQUENCE submission_order;  -- executions that are submitted within a millisecond keep their order

-- The tenant of the calling role; null if it may not submit. The owner of the schema and superusers need no row.
CREATE FUNCTION submitting_tenant() RETURNS int LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT tenant_id FROM submitting_roles WHERE role = session_user),
        (SELECT min(t.tenant_id) FROM tenants t
         WHERE EXISTS (SELECT FROM pg_roles r WHERE r.rolname = session_user AND (
             r.rolsuper OR r.oid = (SELECT nspowner FROM pg_namespace WHERE nspname = 'mainspring')))),
        (SELECT CASE WHEN min(s.tenant_id) = max(s.tenant_id) THEN min(s.tenant_id) END
         FROM submitting_roles s JOIN pg_roles r ON r.rolname = s.role
         WHERE pg_has_role(session_user, r.oid, 'MEMBER')))
$$;

-- Refuses a call of `submit`; the client maps the codes MS403, MS404, MS409 and MS422 to its errors.
CREATE FUNCTION refuse_submission(code text, message text, hint text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', message USING ERRCODE = code, HINT = hint;
END $$;

-- Submits an execution of a job in the caller's transaction and returns its id. The execution exists once the caller has
-- committed and the leader has moved it; the NOTIFY of the commit wakes the leader. Its bounds are those of requests: the
-- leader must be able to read whatever is here. A key that was used before, and not forgotten, returns the first execution.
CREATE FUNCTION submit(
    job text, params jsonb DEFAULT NULL, at timestamptz DEFAULT NULL, key text DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
DECLARE
    tenant int := submitting_tenant();
    found_job uuid;
    now_ms bigint := floor(extract(epoch FROM db_now()) * 1000);
    due_ms bigint;
    prefix text;
    digits text;
    made uuid;
    first submissions%ROWTYPE;
BEGIN
    IF tenant IS NULL THEN
        PERFORM refuse_submission('MS403', format('the role %I may not submit executions', session_user),
            format('as the owner of the schema, run: SELECT mainspring.allow_submit(%L)', session_user));
    END IF;
    IF jsonb_typeof(submit.params) NOT IN ('object', 'null') THEN
        PERFORM refuse_submission('MS422', 'params must be a JSON object', 'for example {"region": "us"}');
    ELSIF octet_length(submit.params::text) > 1000000 THEN
        PERFORM refuse_submission('MS422', 'params have more than 1,000,000 bytes', 'store large values elsewhere');
    ELSIF jsonb_path_exists(submit.params, '$.**{32}') THEN
        PERFORM refuse_submission('MS422', 'params are nested deeper than 32 levels', 'use a flatter structure');
    ELSIF jsonb_path_exists(submit.params,
            '$.** ? (@.type() == "number" && (@ > 9223372036854775807 || @ < -9223372036854775808))') THEN
        PERFORM refuse_submission('MS422', 'params have a number of more than 64 bits', 'send it as a string');
    ELSIF char_length(submit.key) NOT BETWEEN 1 AND 200 THEN
        PERFORM refuse_submission('MS422', 'the key must have 1 to 200 characters', 'use a digest of a longer key');
    ELSIF submit.at NOT BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00' THEN
        PERFORM refuse_submission('MS422', 'at must be between the years 1 and 9999', 'leave it out for now');
    END IF;
    SELECT j.job_id INTO found_job FROM jobs j
    WHERE j.tenant_id = tenant AND j.name = submit.job AND j.deleted_at IS NULL;
    IF found_job IS NULL THEN
        PERFORM refuse_submission('MS404', format('there is no job %L', left(submit.job, 256)),
            'register it first, for example by starting its worker');
    END IF;
    due_ms := greatest(now_ms, floor(extract(epoch FROM submit.at) * 1000));
    prefix := lpad(to_hex(due_ms), 12, '0');
    IF submit.key IS NULL THEN
        digits := lpad(to_hex(nextval('submission_order') & 16777215), 6, '0')
                  || left(replace(gen_random_uuid()::text, '-', ''), 12);
        made := (prefix || '8' || substr(digits, 1, 3) || 'a' || substr(digits, 4))::uuid;
        INSERT INTO submissions (execution_id, tenant_id, job_id, at, due_at, params, created_by)
        VALUES (made, tenant, found_job, submit.at, timestamptz 'epoch' + due_ms * interval '1 millisecond',
                nullif(submit.params, 'null'), format('database role %s', session_user));
    ELSE
        made := execution_id(prefix, found_job, 'manual:' || submit.key);
        LOOP
            -- Waits for another transaction with the same key.
            INSERT INTO submissions (execution_id, tenant_id, job_id, key, at, due_at, params, created_by)
            VALUES (made, tenant, found_job, submit.key, submit.at,
                    timestamptz 'epoch' + due_ms * interval '1 millisecond',
                    nullif(submit.params, 'null'), format('database role %s', session_user))
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                -- Moved meanwhile, or submitted through the API: a later statement sees what was committed since.
                SELECT k.execution_id INTO first.execution_id FROM idempotency_keys k
                WHERE k.tenant_id = tenant AND k.job_id = found_job AND k.key = submit.key;
                IF first.execution_id IS NOT NULL THEN
                    DELETE FROM submissions s WHERE s.execution_id = made;
                    RETURN first.execution_id;
                END IF;
                EXIT;
            END IF;
            SELECT * INTO first FROM submissions s
            WHERE s.tenant_id = tenant AND s.job_id = found_job AND s.key = submit.key;
            IF FOUND THEN
                IF (first.at, first.params) IS DISTINCT FROM (submit.at, nullif(submit.params, 'null')) THEN
                    PERFORM refuse_submission('MS409',
                        format('the key %L was used for a different request', submit.key), 'use another key');
                END IF;
                RETURN first.execution_id;
            END IF;
        END LOOP;
    END IF;
    PERFORM pg_notify('mainspring_submissions', '');
    RETURN made;
END $$;
REVOKE ALL ON FUNCTION submit(text, jsonb, timestamptz, text) FROM PUBLIC;

-- Allows a role to submit executions of a tenant's jobs: USAGE of the schema and EXECUTE of `submit`, nothing else.
CREATE FUNCTION allow_submit(role name, tenant text DEFAULT 'default') RETURNS void LANGUAGE plpgsql
    SET search_path = mainspring, pg_temp AS $$
DECLARE
    found_tenant int := (SELECT t.tenant_id FROM tenants t WHERE t.name = allow_submit.tenant);
BEGIN
    IF found_tenant IS NULL THEN
        RAISE EXCEPTION 'there is no tenant %', quote_literal(allow_submit.tenant);
    END IF;
    INSERT INTO submitting_roles AS s (role, tenant_id) VALUES (allow_submit.role, found_tenant)
    ON CONFLICT ON CONSTRAINT submitting_roles_pkey DO UPDATE SET tenant_id = excluded.tenant_id;
    EXECUTE format('GRANT USAGE ON SCHEMA mainspring TO %I', allow_submit.role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION mainspring.submit(text, jsonb, timestamptz, text) TO %I', allow_submit.role);
END $$;

CREATE FUNCTION revoke_submit(role name) RETURNS void LANGUAGE plpgsql SET search_path = mainspring, pg_temp AS $$
BEGIN
    DELETE FROM submitting_roles s WHERE s.role = revoke_submit.role;
    EXECUTE format('REVOKE EXECUTE ON FUNCTION mainspring.submit(text, jsonb, timestamptz, text) FROM %I',
                   revoke_submit.role);
    EXECUTE format('REVOKE USAGE ON SCHEMA mainspring FROM %I', revoke_submit.role);
END $$;
