"""Firing and promotion: from a due instant to a queued execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.clock import instant, millis
from mainspring.domain.execution import fire_key
from mainspring.store.db import Connection
from mainspring.store.queries import q

ON_TIME = -1


@dataclass(frozen=True, slots=True)
class Due:
    """One instant of one schedule in one shard; if it was missed, how many newer ones were missed too."""

    schedule_id: int
    shard: int
    fire_ms: int
    newer: int = ON_TIME


@dataclass(slots=True)
class Decided:
    """How many executions a firing made, and how many instants it recorded as skipped, by reason."""

    queued: int = 0
    skipped: dict[str, int] | None = None


async def fire(connection: Connection, *, due: Sequence[Due], now_ms: int, careful: bool) -> Decided:
    """Careful: looks whether an execution is there already instead of failing over it."""
    rows = await connection.fetch(
        q("fire"),
        [d.schedule_id for d in due],
        [d.shard for d in due],
        [instant(d.fire_ms) for d in due],
        [f"{d.fire_ms:012x}" for d in due],
        [fire_key(d.fire_ms) for d in due],
        [d.fire_ms for d in due],
        [d.newer for d in due],
        instant(now_ms),
        careful,
    )
    decided = Decided(skipped={})
    assert decided.skipped is not None
    for row in rows:
        if row["queued"]:
            decided.queued += row["n"]
        else:
            decided.skipped[row["word"]] = decided.skipped.get(row["word"], 0) + row["n"]
    return decided


async def skip_range(
    connection: Connection, *, schedule_id: int, last_ms: int, count: int, shards: Sequence[int], now_ms: int
) -> None:
    await connection.execute(
        q("skip_range"), schedule_id, instant(last_ms), f"{last_ms:012x}", fire_key(last_ms), shards, count,
        instant(now_ms),
    )  # fmt: skip


async def abandoned(connection: Connection, *, due: Sequence[Due], now_ms: int) -> list[tuple[int, int]]:
    """Schedule and shard of those that no active job wants any more."""
    rows = await connection.fetch(q("abandoned"), [d.schedule_id for d in due], [d.shard for d in due], instant(now_ms))
    return [(r["schedule_id"], r["shard"]) for r in rows]


async def promote_waiting(connection: Connection, *, shards: Sequence[int], limit: int) -> int:
    rows = await connection.fetch(q("promote_waiting"), shards, limit)
    return sum(r["n"] for r in rows)


async def next_waiting_ms(connection: Connection, *, shards: Sequence[int]) -> int | None:
    due_at = await connection.fetchval(q("next_waiting"), shards)
    return None if due_at is None else millis(due_at)
