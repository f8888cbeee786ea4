-- The order of claims within a line: due time in ms, less 15 minutes for each level of priority. So a higher priority goes
-- ahead of everything that is due up to 15 minutes earlier, and nothing waits for ever. Inlined wherever it is called.
CREATE FUNCTION claim_rank(due_ms bigint, priority smallint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT due_ms - priority * 900000';

-- Rolls back a statement that finds its assumptions outdated; the caller then takes the general path.
CREATE FUNCTION raise_outdated() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an assumption of this statement is outdated' USING ERRCODE = 'MS001';
END $$;

-- Refuses every change of a live state that is not in TRANSITIONS of domain/execution.py. The condition is part of the
-- trigger, so the function is called only for violations. AFTER, because a BEFORE trigger would lock each row once more.
CREATE FUNCTION refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'execution % cannot change from % to %', OLD.execution_id, OLD.state, NEW.state
        USING ERRCODE = 'MS002';
END $$;
CREATE TRIGGER executions_transition AFTER UPDATE OF state ON executions FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT (
        OLD.state = 'waiting' AND NEW.state = 'queued'
        OR OLD.state = 'blocked' AND NEW.state IN ('waiting', 'queued')
        OR OLD.state = 'queued' AND NEW.state = 'running'
        OR OLD.state = 'running' AND NEW.state IN ('waiting', 'queued')
    )) EXECUTE FUNCTION refuse_transition();
