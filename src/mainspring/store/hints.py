"""Hints: wake-ups that a statement causes, sent after its commit.

PostgreSQL commits transactions that contain a NOTIFY one after another, each through its WAL flush. So statements
return what they changed, their store functions note hints on the connection, and `Database` sends them when the block
that borrowed the connection ends. A process that dies in between loses them; periodic checks find the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from mainspring import ports
from mainspring.clock import whole_millis

if TYPE_CHECKING:
    AnyConnection = asyncpg.Connection[Any]
else:
    AnyConnection = asyncpg.Connection

Hints = dict[tuple[str, str], int | None]
"""For each channel and payload the lowest number that belongs to it; None for a payload without number."""


class HintingConnection(AnyConnection):
    """A connection that keeps the hints of its statements until they are sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hints: Hints = {}


def hints_of(connection: object) -> Hints:
    return cast(HintingConnection, connection).hints


def hint(connection: object, channel: str, payload: str = "", *, lowest: int | None = None) -> None:
    """Note a hint for a change that this connection makes; of equal payloads only the lowest number is sent."""
    add_hint(hints_of(connection), channel, payload, lowest)


def hint_waiting(connection: object, due_at: datetime) -> None:
    """Note that an execution waits until an instant."""
    hint(connection, ports.SHARDS, ports.WAIT, lowest=whole_millis(due_at))


def hint_freed(connection: object, limit_ids: Iterable[int]) -> None:
    """Note that concurrency keys have a free slot or a new limit."""
    for limit_id in limit_ids:
        hint(connection, ports.FREED, str(limit_id))


def hint_cancelled(connection: object, rows: Iterable[Any]) -> None:
    """Note that running executions must be cancelled: rows with `session_id`."""
    for row in rows:
        hint(connection, ports.CANCEL, str(row["session_id"]))


def hint_queued(connection: object, rows: Iterable[Any]) -> None:
    """Note that executions were queued: rows with `line_id` and `rank`."""
    for row in rows:
        hint(connection, ports.QUEUED, str(row["line_id"]), lowest=row["rank"])


def hint_placed(connection: object, rows: Iterable[Any]) -> None:
    """Note that executions were queued or wait: rows with `state`, `line_id`, `rank` and `due_at`."""
    lowest: dict[int, int] = {}
    for row in rows:
        state = row["state"]
        if state == "queued":
            line_id, rank = row["line_id"], row["rank"]
            lowest[line_id] = min(rank, lowest.get(line_id, rank))
        elif state == "waiting":
            hint_waiting(connection, row["due_at"])
    for line_id, rank in lowest.items():
        hint(connection, ports.QUEUED, str(line_id), lowest=rank)


def hint_batch(connection: object, row: Any, at_ms: Sequence[int | None]) -> None:
    """Note that executions of one job were submitted at `row["now_ms"]`: a row with `line_id` and `rank`."""
    now_ms = row["now_ms"]
    later = [at for at in at_ms if at is not None and at > now_ms]
    if later:
        hint(connection, ports.SHARDS, ports.WAIT, lowest=min(later))
    if len(later) < len(at_ms):
        hint(connection, ports.QUEUED, str(row["line_id"]), lowest=row["rank"])


def add_hint(hints: Hints, channel: str, payload: str, lowest: int | None) -> None:
    known = hints.get((channel, payload))
    hints[channel, payload] = lowest if known is None or lowest is None else min(known, lowest)


def text_of(payload: str, lowest: int | None) -> str:
    return payload if lowest is None else f"{payload} {lowest}"
