"""Records every change of state in a test database, by triggers on the tables of executions."""

from __future__ import annotations

from mainspring.store.db import Database

Change = tuple[str | None, str | None]
"""State before and after; None before: created; None after: deleted without a row in history."""

_RECORD = """
CREATE TABLE recorded (change_id bigserial, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), execution_id uuid NOT NULL,
                       operation text NOT NULL, before text, after text);
CREATE FUNCTION record_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO recorded (execution_id, operation, before) VALUES (OLD.execution_id, 'delete', OLD.state);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO recorded (execution_id, operation, before, after)
        VALUES (NEW.execution_id, 'update', OLD.state, NEW.state);
    ELSE
        INSERT INTO recorded (execution_id, operation, after)
        VALUES (NEW.execution_id, CASE WHEN TG_ARGV[0] = 'history' THEN 'end' ELSE 'insert' END, NEW.state);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER recorded_live AFTER INSERT OR UPDATE OR DELETE ON executions
    FOR EACH ROW EXECUTE FUNCTION record_change('executions');
CREATE TRIGGER recorded_final AFTER INSERT ON history FOR EACH ROW EXECUTE FUNCTION record_change('history');
"""

_CHANGES = """
SELECT before, after, count(*) AS n FROM (
    SELECT before, after FROM recorded WHERE operation = 'insert' OR operation = 'update' AND before <> after
    UNION ALL
    SELECT d.before, e.after
    FROM (SELECT * FROM recorded WHERE operation = 'delete') AS d
    FULL JOIN (SELECT * FROM recorded WHERE operation = 'end') AS e USING (xid, execution_id)
) AS changes GROUP BY before, after
"""


async def record_transitions(database: Database) -> None:
    """From now on, every change of state is recorded."""
    async with database.connection() as connection:
        await connection.execute(_RECORD)


async def recorded_transitions(database: Database) -> dict[Change, int]:
    """Every recorded change and how often it occurred. A row that moves to history is one change."""
    async with database.connection() as connection:
        return {(r["before"], r["after"]): r["n"] for r in await connection.fetch(_CHANGES)}
