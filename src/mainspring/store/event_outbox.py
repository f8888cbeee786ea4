"""Events of all tenants that wait for the event stream. They are written with the change that they report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import asyncpg

from mainspring import ports
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q
from mainspring.wire.event_stream import StreamEvent

EventTypes = Literal["all", "ends"]
"""`ends`: without the events of an execution before its first attempt has ended."""


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event with its place in the outbox and its key: events with the same key keep their order."""

    number: int
    key: str
    event: StreamEvent


async def want_events(connection: Connection, *, for_s: float, types: EventTypes = "all") -> None:
    """Have events written for some time. Over all tenants: the server relays those of every tenant."""
    row = await connection.fetchrow(q("want_events"), for_s, types == "all")
    if row is not None and row["is_new"]:
        hint(connection, ports.CHANNELS)


async def follow_executions(connection: Connection) -> bool | None:
    """Have events before the end of executions written if a channel or the event stream wants them; return whether.

    Over all tenants: a leader duty. None: the tables are in use, and it must be called again.
    """
    try:
        return bool(await connection.fetchval(q("follow_executions")))
    except asyncpg.LockNotAvailableError:
        return None


async def next_events(connection: Connection, *, limit: int) -> list[WaitingEvent]:
    """Over all tenants: a leader duty."""
    return [
        WaitingEvent(
            r["event_number"],
            r["key"],
            StreamEvent(
                version=1,
                event_id=r["event_id"],
                event=r["event"],
                tenant=r["tenant"],
                occurred_at=r["created_at"],
                data=r["body"],
            ),
        )
        for r in await connection.fetch(q("next_events"), limit)
    ]


async def events_relayed(connection: Connection, *, numbers: Sequence[int]) -> None:
    await connection.execute(q("events_relayed"), numbers)


async def events_waiting(connection: Connection) -> tuple[int, float]:
    """Return about how many events wait, and for how long the oldest has."""
    row = await connection.fetchrow(q("events_waiting"))
    return (0, 0.0) if row is None else (row["events"], max(0.0, row["since_s"]))


async def drop_events(connection: Connection, *, most: int, limit: int) -> int:
    """Delete the oldest events beyond `most`, at most `limit`; return how many. Over all tenants: a leader duty."""
    return int(await connection.fetchval(q("drop_events"), most, limit) or 0)


async def forget_events(connection: Connection, *, after_s: float, limit: int) -> None:
    """Over all tenants: a leader duty."""
    await connection.execute(q("forget_events"), after_s, limit)
