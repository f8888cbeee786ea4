"""Firing and promotion: from a due instant to a queued execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring.clock import instant, millis, whole_millis
from mainspring.domain.execution import fire_key
from mainspring.domain.schedule.blackouts import Scope
from mainspring.store import executions
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
    wait_ms: int | None = None
    """When the first of those that start later is due."""
    needing: list[UUID] = field(default_factory=list)
    """Jobs whose executions wait for what they need."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Jobs on a schedule whose fire falls into a blackout: its end, and the newer fires inside."""

    schedule_id: int
    fire_ms: int
    scope: Scope
    until_ms: int
    inside: Sequence[int]


async def fire(connection: Connection, *, due: Sequence[Due], now_ms: int, careful: bool) -> Decided:
    """Careful: looks whether an execution is there already instead of failing over it."""
    return _decided(await connection.fetch(q("fire"), *_arrays(due), instant(now_ms), careful))


async def fire_later(
    connection: Connection, *, due: Sequence[Due], gaps_ms: Sequence[int | None], holds: Sequence[Hold], now_ms: int
) -> Decided:
    rows = await connection.fetch(
        q("fire_later"),
        *_arrays(due),
        instant(now_ms),
        gaps_ms,
        [h.schedule_id for h in holds],
        [instant(h.fire_ms) for h in holds],
        [h.scope.tenant for h in holds],
        [h.scope.queue for h in holds],
        [h.scope.job_id for h in holds],
        [instant(h.until_ms) for h in holds],
        [",".join(map(str, h.inside)) for h in holds],
    )
    decided = _decided(rows)
    waits = [millis(row["due_at"]) for row in rows if row["due_at"] is not None]
    decided.wait_ms = min(waits, default=None)
    decided.needing = [job_id for row in rows for job_id in row["needing"] or ()]
    return decided


def _arrays(due: Sequence[Due]) -> tuple[list[Any], ...]:
    return (
        [d.schedule_id for d in due],
        [d.shard for d in due],
        [instant(d.fire_ms) for d in due],
        [f"{d.fire_ms:012x}" for d in due],
        [fire_key(d.fire_ms) for d in due],
        [d.fire_ms for d in due],
        [d.newer for d in due],
    )


def _decided(rows: Sequence[Any]) -> Decided:
    decided = Decided(skipped={})
    assert decided.skipped is not None
    for row in rows:
        if row["queued"]:
            decided.queued += row["n"]
        else:
            decided.skipped[row["word"]] = decided.skipped.get(row["word"], 0) + row["n"]
    return decided


async def skip_range(
    connection: Connection, *, schedule_id: int, fires: Sequence[int], shards: Sequence[int], now_ms: int
) -> None:
    """One row for each job that wants all of them, and one for each that wants some."""
    first, last = instant(fires[0]), instant(fires[-1])
    await connection.execute(
        q("skip_range"),
        schedule_id,
        first,
        last,
        f"{fires[-1]:012x}",
        fire_key(fires[-1]),
        shards,
        len(fires),
        instant(now_ms),
    )
    for job in await connection.fetch(q("partly_active"), schedule_id, first, last, shards):
        wanted = [
            at
            for at in fires
            if at > whole_millis(job["active_from"])
            and (job["start_at"] is None or at >= millis(job["start_at"]))
            and (job["end_at"] is None or at <= millis(job["end_at"]))
        ]
        if wanted:
            await executions.skip_undecided(
                connection,
                tenant=job["tenant_id"],
                job_id=job["job_id"],
                version=job["version"],
                last_ms=wanted[-1],
                count=len(wanted),
                reason="misfire",
            )


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
