"""What must hold after every step: the invariants of the doctor, and those that only a simulation can check."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.doctor import CHECKS
from mainspring.store.queries import q
from tests.support.empty_tables import emptying
from tests.support.fire_checker import FIRES, JOBS, SHARDS, Verdict, compare, interval_in_name

RECORDERS = """
CREATE TABLE sim_starts (start_id bigserial, execution_id uuid, attempt int, session_id uuid, job_id uuid);
CREATE TABLE sim_offences (what text);
CREATE FUNCTION sim_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sim_starts (execution_id, attempt, session_id, job_id)
    VALUES (NEW.execution_id, NEW.attempt, NEW.session_id, NEW.job_id);
    RETURN NULL;
END $$;
CREATE TRIGGER sim_started AFTER INSERT OR UPDATE ON executions
    FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION sim_start();
CREATE FUNCTION sim_offence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sim_offences VALUES (TG_ARGV[0] || ': ' || to_jsonb(OLD)::text);
    RETURN NULL;
END $$;
CREATE TRIGGER sim_final AFTER UPDATE ON history FOR EACH ROW EXECUTE FUNCTION sim_offence('I10 a final row changed');
CREATE TRIGGER sim_epoch AFTER UPDATE ON shards FOR EACH ROW
    WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION sim_offence('I17 an epoch went back');
CREATE TRIGGER sim_watermark AFTER UPDATE ON shards FOR EACH ROW
    WHEN (NEW.watermark < OLD.watermark AND NEW.changes >= OLD.changes)
    EXECUTE FUNCTION sim_offence('I3 a watermark went back');
"""
_EMPTY = emptying(
    "executions", "history", "attempts", "dead_letters", "job_versions", "jobs", "schedulers", "sessions", "workers",
    "limits", "lines", "schedules", "request_keys", "idempotency_keys", "outbox", "sim_starts", "sim_offences",
)  # fmt: skip
RESET = f"""
ALTER TABLE shards DISABLE TRIGGER USER;
{_EMPTY}
UPDATE shards SET owner = NULL, lease_expires_at = NULL, watermark = db_now(), changes = 0, epoch = 0;
ALTER TABLE shards ENABLE TRIGGER USER;
"""

LIVENESS = ("firing_held", "invariant_i2", "invariant_i16", "invariant_i17", "invariant_i18", "due_waiting",
            "overdue_starts", "overlong_pauses")  # fmt: skip
"""Checks of the doctor that hold once faults have ended and time has passed."""
_OWN = {
    "I5 I7 an attempt number starts once": """
        SELECT execution_id::text AS offender, 'attempt ' || attempt || ' started ' || count(DISTINCT session_id)
               || ' times' AS what
        FROM sim_starts GROUP BY execution_id, attempt HAVING count(DISTINCT session_id) > 1""",
    "I8 at_most_once starts once": """
        SELECT s.execution_id::text, 'started ' || count(DISTINCT s.attempt) || ' times'
        FROM sim_starts s JOIN jobs j USING (job_id) WHERE j.name LIKE 'once-%'
        GROUP BY s.execution_id HAVING count(DISTINCT s.attempt) > 1""",
    "I22 only the current attempt and session end an execution": """
        SELECT h.execution_id::text, 'ended by attempt ' || h.attempt || ' of session ' || h.session_id
        FROM history h JOIN LATERAL (
            SELECT attempt, session_id FROM sim_starts s WHERE s.execution_id = h.execution_id
            ORDER BY attempt DESC LIMIT 1
        ) AS latest ON true
        WHERE h.session_id IS NOT NULL
          AND (h.attempt, h.session_id) IS DISTINCT FROM (latest.attempt, latest.session_id)""",
    "only executions of ended sessions are lost": """
        SELECT a.execution_id::text, 'lost on a live session' FROM attempts a JOIN sessions s USING (session_id)
        WHERE a.outcome = 'lost' AND (s.ended_at IS NULL OR s.ended_at > a.ended_at)""",
    "recorded": "SELECT '-', what FROM sim_offences",
}
_PARAMETER = re.compile(r"\$\d+(::int)?")


def _joined(names: list[str], own: dict[str, str]) -> str:
    """All checks as one query, so that a step pays for one round trip."""
    queries = {name: _PARAMETER.sub("NULL::int", q(name).rstrip().rstrip(";")) for name in names}
    parts = [
        f"SELECT '{title}' AS title, offender, what FROM ({text}) AS c{n} (offender, what)"
        for n, (title, text) in enumerate({**queries, **own}.items())
    ]
    return "\nUNION ALL\n".join(parts)


ALWAYS = _joined([name for name in CHECKS if name not in LIVENESS], _OWN)
IN_THE_END = _joined(list(CHECKS), _OWN)
_ACKNOWLEDGED = """
SELECT a.id::text FROM unnest($1::uuid[]) AS a (id)
WHERE NOT EXISTS (SELECT FROM all_executions e WHERE e.execution_id = a.id)
"""


async def offences(connection: Connection, acknowledged: list[UUID], *, in_the_end: bool = False) -> list[str]:
    """Return what is wrong in the database."""
    rows = await connection.fetch(IN_THE_END if in_the_end else ALWAYS)
    found = [f"{r['title']}: {r['offender']} {r['what']}" for r in rows]
    if acknowledged:
        lost = await connection.fetch(_ACKNOWLEDGED, acknowledged)
        found += [f"acknowledged, and lost: {r[0]}" for r in lost]
    verdict = await judged(connection)
    for name in ("missed", "doubled", "invented", "early"):
        if wrong := getattr(verdict, name):
            found.append(f"fires {name}: {wrong[:3]}")
    return found


async def judged(connection: Connection) -> Verdict:
    """The independent check of fires, on this connection."""
    jobs: list[Any] = [j for j in await connection.fetch(JOBS) if j["name"].count("-") == 2]
    rows = await connection.fetch(FIRES)
    watermarks: dict[int, datetime] = {r["shard"]: r["watermark"] for r in await connection.fetch(SHARDS)}
    return compare(Verdict(), jobs, rows, watermarks, interval_in_name)
