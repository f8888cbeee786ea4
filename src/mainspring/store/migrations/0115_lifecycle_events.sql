-- The event stream also wants the events before the end of an execution until then.
ALTER TABLE event_stream ADD COLUMN all_until timestamptz;

-- Events of executions before their end (created, queued, started) and of skipped fires. Triggers write them, because dozens
-- of statements make these changes. The triggers are disabled, and cost nothing, until a channel or the event stream wants
-- such events: see follow_executions.
CREATE FUNCTION write_lifecycle(rows executions[], is_new boolean) RETURNS void LANGUAGE sql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
    WITH changed AS (
        SELECT e.*, 'execution.' || s.event AS event, s.n, j.name AS job,
               md5(e.execution_id || ':' || e.attempt || ':' || s.event
                   || (SELECT extract(epoch FROM db_now())))::uuid AS event_id,
               jsonb_build_object(
                   'execution_id', e.execution_id, 'job_id', e.job_id, 'job', j.name, 'trigger', e.trigger,
                   'queue', e.queue, 'attempt', e.attempt, 'fire_at', e.fire_at,
                   'due_at', CASE WHEN e.due_at < 'infinity' THEN e.due_at END,
                   'queued_at', e.queued_at, 'started_at', CASE WHEN e.state = 'running' THEN e.started_at END
               ) AS body
        FROM unnest(rows) AS e JOIN jobs j USING (job_id)
        CROSS JOIN LATERAL (VALUES (1, 'created', is_new), (2, 'queued', e.state = 'queued'),
                                   (3, 'started', e.state = 'running')) AS s (n, event, happened)
        WHERE s.happened
    ), sent AS (
        INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
        SELECT e.event_id, e.tenant_id, c.channel_id, e.event, e.job_id, e.body || jsonb_build_object('state', e.state)
        FROM changed e JOIN channels c ON c.tenant_id = e.tenant_id AND c.disabled_at IS NULL AND e.event = ANY (c.events)
        WHERE c.jobs = '{}' OR EXISTS (
            SELECT FROM unnest(c.jobs) AS p (name)
            WHERE e.job = p.name OR (p.name LIKE '%*' AND starts_with(e.job, rtrim(p.name, '*')))
        )
        ORDER BY e.execution_id, e.n, c.channel_id
        ON CONFLICT (channel_id, event_id) DO NOTHING
    )
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT e.event_id, e.tenant_id, e.event, e.job_id,
           e.body || jsonb_build_object('status', e.state, 'retry_count', greatest(e.attempt - 1, 0))
    FROM changed e WHERE EXISTS (SELECT FROM event_stream WHERE all_until > db_now())
    ORDER BY e.execution_id, e.n
$$;
REVOKE ALL ON FUNCTION write_lifecycle(executions[], boolean) FROM PUBLIC;

CREATE FUNCTION executions_created() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
BEGIN
    PERFORM write_lifecycle((SELECT array_agg(ROW(fresh.*)::executions) FROM fresh), true);
    RETURN NULL;
END $$;
CREATE TRIGGER executions_created AFTER INSERT ON executions
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION executions_created();

CREATE FUNCTION executions_changed() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
BEGIN
    PERFORM write_lifecycle((
        SELECT array_agg(ROW(fresh.*)::executions) FROM fresh JOIN before USING (execution_id)
        WHERE fresh.state IN ('queued', 'running') AND fresh.state <> before.state
    ), false);
    RETURN NULL;
END $$;
CREATE TRIGGER executions_changed AFTER UPDATE ON executions
    REFERENCING OLD TABLE AS before NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION executions_changed();

-- The fires that became no execution.
CREATE FUNCTION history_skipped() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp AS $$
BEGIN
    WITH skipped AS (
        SELECT h.execution_id, h.tenant_id, h.job_id, j.name AS job,
               md5(h.execution_id || ':execution.skipped')::uuid AS event_id,
               jsonb_build_object(
                   'execution_id', h.execution_id, 'job_id', h.job_id, 'job', j.name, 'trigger', h.trigger,
                   'queue', h.queue, 'attempt', h.attempt, 'fire_at', h.fire_at,
                   'due_at', CASE WHEN h.due_at < 'infinity' THEN h.due_at END, 'finished_at', h.finished_at,
                   'reason', h.reason, 'fires', h.fires
               ) AS body
        FROM fresh h JOIN jobs j USING (job_id) WHERE h.state = 'skipped'
    ), sent AS (
        INSERT INTO outbox (event_id, tenant_id, channel_id, event, stream, body)
        SELECT e.event_id, e.tenant_id, c.channel_id, 'execution.skipped', e.job_id, e.body || '{"state": "skipped"}'
        FROM skipped e JOIN channels c ON c.tenant_id = e.tenant_id AND c.disabled_at IS NULL
         AND 'execution.skipped' = ANY (c.events)
        WHERE c.jobs = '{}' OR EXISTS (
            SELECT FROM unnest(c.jobs) AS p (name)
            WHERE e.job = p.name OR (p.name LIKE '%*' AND starts_with(e.job, rtrim(p.name, '*')))
        )
        ORDER BY e.execution_id, c.channel_id
        ON CONFLICT (channel_id, event_id) DO NOTHING
    )
    INSERT INTO event_outbox (event_id, tenant_id, event, key, body)
    SELECT e.event_id, e.tenant_id, 'execution.skipped', e.job_id, e.body || '{"status": "skipped"}'
    FROM skipped e WHERE EXISTS (SELECT FROM event_stream WHERE all_until > db_now())
    ORDER BY e.execution_id;
    RETURN NULL;
END $$;
CREATE TRIGGER history_skipped AFTER INSERT ON history
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION history_skipped();
ALTER TABLE executions DISABLE TRIGGER executions_created, DISABLE TRIGGER executions_changed;
ALTER TABLE ONLY history DISABLE TRIGGER history_skipped;

-- Enables these triggers if a channel or the event stream wants their events, and disables them otherwise; returns whether
-- they are enabled. A change locks the tables against writes for a moment, and fails if the lock is not free.
CREATE FUNCTION follow_executions() RETURNS boolean LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = mainspring, pg_temp SET lock_timeout = '300ms' AS $$
DECLARE
    wanted boolean := EXISTS (SELECT FROM event_stream WHERE all_until > db_now()) OR EXISTS (
        SELECT FROM channels WHERE disabled_at IS NULL
         AND events && '{execution.created,execution.queued,execution.started,execution.skipped}');
BEGIN
    IF wanted IS DISTINCT FROM (
        SELECT bool_and(tgenabled <> 'D') FROM pg_trigger
        WHERE tgrelid IN ('executions'::regclass, 'history'::regclass)
          AND tgname IN ('executions_created', 'executions_changed', 'history_skipped')
    ) THEN
        IF wanted THEN
            ALTER TABLE executions ENABLE TRIGGER executions_created, ENABLE TRIGGER executions_changed;
            ALTER TABLE ONLY history ENABLE TRIGGER history_skipped;
        ELSE
            ALTER TABLE executions DISABLE TRIGGER executions_created, DISABLE TRIGGER executions_changed;
            ALTER TABLE ONLY history DISABLE TRIGGER history_skipped;
        END IF;
    END IF;
    RETURN wanted;
END $$;
