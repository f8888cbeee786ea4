"""Firing and promotion: statements that turn a due instant into a queued execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring.clock import instant, millis, whole_millis
from mainspring.domain.execution import fire_key
from mainspring.domain.schedule.blackouts import Scope
from mainspring.domain.schedule.budget import FIRE_STEPS
from mainspring.domain.schedule.recurrence import Schedule, count_at_least
from mainspring.store import executions
from mainspring.store.db import Connection
from mainspring.store.hints import hint_queued
from mainspring.store.queries import q

ON_TIME = -1
COUNT_STEPS = FIRE_STEPS
"""Steps to count missed instants; of a schedule that needs more, the count is a lower bound."""


@dataclass(frozen=True, slots=True)
class DueFire:
    """One instant of one schedule in one shard. `newer`: if it was missed, how many newer ones were missed too."""

    schedule_id: int
    shard: int
    fire_ms: int
    newer: int = ON_TIME


@dataclass(slots=True)
class FireResult:
    """How many executions were created, and how many instants were recorded as skipped, by reason."""

    queued: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    wait_ms: int | None = None
    """When the first of the delayed executions is due."""
    needing: list[UUID] = field(default_factory=list)
    """Jobs whose executions wait for other jobs they need."""


@dataclass(frozen=True, slots=True)
class BlackoutDelay:
    """A blackout in force at a fire of some jobs: its end, and the later fires inside it."""

    schedule_id: int
    fire_ms: int
    scope: Scope
    until_ms: int
    inside: Sequence[int]


async def fire(connection: Connection, *, due: Sequence[DueFire], now_ms: int, check_ids: bool) -> FireResult:
    """With `check_ids`, skip executions that exist already instead of raising Taken."""
    return _result(connection, await connection.fetch(q("fire"), *_arrays(due), instant(now_ms), check_ids))


async def fire_delayed(
    connection: Connection,
    *,
    due: Sequence[DueFire],
    gaps_ms: Sequence[int | None],
    blackouts: Sequence[BlackoutDelay],
    now_ms: int,
) -> FireResult:
    rows = await connection.fetch(
        q("fire_delayed"),
        *_arrays(due),
        instant(now_ms),
        gaps_ms,
        [b.schedule_id for b in blackouts],
        [instant(b.fire_ms) for b in blackouts],
        [b.scope.tenant for b in blackouts],
        [b.scope.queue for b in blackouts],
        [b.scope.job_id for b in blackouts],
        [instant(b.until_ms) for b in blackouts],
        [",".join(map(str, b.inside)) for b in blackouts],
    )
    result = _result(connection, rows)
    waits = [millis(row["due_at"]) for row in rows if row["due_at"] is not None]
    result.wait_ms = min(waits, default=None)
    result.needing = [job_id for row in rows for job_id in row["needing"] or ()]
    return result


def _arrays(due: Sequence[DueFire]) -> tuple[list[Any], ...]:
    return (
        [d.schedule_id for d in due],
        [d.shard for d in due],
        [instant(d.fire_ms) for d in due],
        [f"{d.fire_ms:012x}" for d in due],
        [fire_key(d.fire_ms) for d in due],
        [d.fire_ms for d in due],
        [d.newer for d in due],
    )


def _result(connection: Connection, rows: Sequence[Any]) -> FireResult:
    hint_queued(connection, (row for row in rows if row["line_id"] is not None))
    result = FireResult()
    for row in rows:
        if row["queued"]:
            result.queued += row["n"]
        else:
            result.skipped[row["reason"]] = result.skipped.get(row["reason"], 0) + row["n"]
    return result


async def skip_range(
    connection: Connection,
    *,
    schedule_id: int,
    schedule: Schedule,
    after_ms: int,
    last_ms: int,
    shards: Sequence[int],
    now_ms: int,
) -> None:
    """Record missed instants as one skipped row per job; jobs active for only a part are counted one by one."""
    first_ms, count = schedule.next_after(after_ms), count_at_least(schedule, after_ms, last_ms, COUNT_STEPS)
    if first_ms is None or not count:
        return
    first, last = instant(first_ms), instant(last_ms)
    await connection.execute(
        q("skip_range"),
        schedule_id,
        first,
        last,
        f"{last_ms:012x}",
        fire_key(last_ms),
        shards,
        count,
        instant(now_ms),
    )
    for job in await connection.fetch(q("partly_active"), schedule_id, first, last, shards):
        low_ms, high_ms = max(after_ms, whole_millis(job["active_from"])), last_ms
        if job["start_at"] is not None:
            low_ms = max(low_ms, millis(job["start_at"]) - 1)
        if job["end_at"] is not None:
            high_ms = min(high_ms, millis(job["end_at"]))
        newest_ms = schedule.prev_before(high_ms + 1)
        if newest_ms is not None and newest_ms > low_ms:
            await executions.skip_undecided(
                connection,
                tenant=job["tenant_id"],
                job_id=job["job_id"],
                version=job["version"],
                last_ms=newest_ms,
                count=count_at_least(schedule, low_ms, high_ms, COUNT_STEPS),
                reason="misfire",
            )


async def abandoned(connection: Connection, *, due: Sequence[DueFire], now_ms: int) -> list[tuple[int, int]]:
    """Return (schedule, shard) of those without an active job."""
    rows = await connection.fetch(q("abandoned"), [d.schedule_id for d in due], [d.shard for d in due], instant(now_ms))
    return [(r["schedule_id"], r["shard"]) for r in rows]


async def promote_waiting(connection: Connection, *, shards: Sequence[int], limit: int) -> int:
    rows = await connection.fetch(q("promote_waiting"), shards, limit)
    hint_queued(connection, rows)
    return sum(r["n"] for r in rows)


async def next_waiting_ms(connection: Connection, *, shards: Sequence[int]) -> int | None:
    due_at = await connection.fetchval(q("next_waiting"), shards)
    return None if due_at is None else millis(due_at)


@dataclass(slots=True)
class WaitingAhead:
    """The next due instants of a shard in order, and from when on there may be others; None: nothing else waits."""

    due_ms: list[int] = field(default_factory=list)
    end_ms: int | None = None


async def waiting_ahead(connection: Connection, *, shards: Sequence[int], limit: int) -> dict[int, WaitingAhead]:
    """Read the next instants of each shard, at most `limit`."""
    found = {shard: WaitingAhead() for shard in shards}
    for row in await connection.fetch(q("waiting_ahead"), shards, limit):
        # Rounded up: at that instant, the execution is due.
        due_ms = whole_millis(row["due_at"]) + (row["due_at"].microsecond % 1000 > 0)
        found[row["shard"]].due_ms.append(due_ms)
    for ahead in found.values():
        if len(ahead.due_ms) == limit:
            ahead.end_ms = ahead.due_ms.pop()
    return found
