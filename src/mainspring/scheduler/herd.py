"""Decides a herd of due fires in several transactions, cut by shard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

import structlog

from mainspring.clock import Clock
from mainspring.ports import DueInstant, FireLock
from mainspring.scheduler.schedule_wheel import ScheduleWheel, UndecidedFires, shards_in
from mainspring.scheduler.tick import OwnedShard, TickResult, tick
from mainspring.store import shards
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

CHUNK_EXECUTIONS = 2_500
"""About how many executions one transaction creates."""
PARALLEL_CHUNKS = 2
CONFIRM_S = 0.5
"""A lock that names a later owner is ignored if the rows of the shards do not confirm it within this time."""
MOST_LOCKED = 5_000
"""Instants of a transaction that get a lock of their own. For the others of a backlog, the row decides alone."""


async def tick_in_chunks(
    database: Database,
    wheel: ScheduleWheel,
    *,
    owner: UUID,
    owned: dict[int, OwnedShard],
    wanted: Sequence[int],
    due: list[UndecidedFires],
    now_ms: int,
    on_tick: Callable[[TickResult], None],
    clock: Clock,
    fire_lock: FireLock | None = None,
) -> None:
    """Decide the wanted shards. `on_tick` runs after each transaction, and for shards that the lock refuses.

    When a transaction fails, its shards stay undecided, and the error is raised.
    """
    started = clock.monotonic()
    size = max(1, round(len(wanted) * CHUNK_EXECUTIONS / max(1, wheel.count_executions(due))))
    chunks = _chunks(wanted, size)

    async def decide_chunks() -> None:
        while chunks:
            chunk = chunks.pop()
            mask = sum(1 << shard for shard in chunk)
            theirs = [one for one in due if one.shard_mask & mask]
            if fire_lock is not None and (refused := await fire_lock.refused(_instants(theirs, chunk, owned))):
                lost = await _confirmed(database, refused, owner, owned)
                on_tick(TickResult(lost=lost, refused=True))
                chunk = [shard for shard in chunk if shard not in lost]
                if not chunk:
                    continue
            result = await tick(database, wheel, owner=owner, owned=owned, wanted=chunk, due=theirs, until_ms=now_ms)
            on_tick(result)
            _measure(result, theirs)

    # Chunks share no shard, so PostgreSQL may work on several at once.
    try:
        async with asyncio.TaskGroup() as together:
            for _ in range(min(PARALLEL_CHUNKS, len(chunks))):
                together.create_task(decide_chunks())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    metrics.TICK_SECONDS.observe(clock.monotonic() - started)


async def _confirmed(database: Database, refused: set[int], owner: UUID, owned: dict[int, OwnedShard]) -> set[int]:
    """Return the shards of which the lock names a later owner, and the rows do not deny it in time.

    Any client of the engine can plant a lock. It costs this read, and must not keep an owner from firing.
    """
    epochs = {shard: owned[shard].epoch for shard in refused if shard in owned}
    lost = set[int]()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONFIRM_S), database.connection() as connection:
            lost = epochs.keys() - await shards.still_owned(connection, owner=owner, epochs=epochs)
    if false := epochs.keys() - lost:
        metrics.FALSE_FIRE_LOCKS.inc(len(false))
        log.warning("fire_lock.ignored", shards=sorted(false))
    return lost


def _instants(due: Sequence[UndecidedFires], chunk: Sequence[int], owned: dict[int, OwnedShard]) -> list[DueInstant]:
    found = (
        DueInstant(shard, owned[shard].epoch, one.schedule_id, at)
        for one in due
        for shard in chunk
        if one.shard_mask >> shard & 1 and shard in owned
        for at in one.fires
    )
    return list(islice(found, MOST_LOCKED))


def touched_shards(due: Sequence[UndecidedFires]) -> list[int]:
    mask = 0
    for one in due:
        mask |= one.shard_mask
    return shards_in(mask)


def _measure(result: TickResult, due: Sequence[UndecidedFires]) -> None:
    metrics.JOBS_SCHEDULED.inc(result.queued)
    for reason, n in result.skipped.items():
        metrics.FIRES_SKIPPED.labels(reason).inc(n)
    if result.queued and due:
        late_s = (result.now_ms - min(one.fires[-1] for one in due)) / 1000
        metrics.SCHEDULING_LATENCY.observe(max(0.0, late_s))


def _chunks(shards: Sequence[int], size: int) -> list[list[int]]:
    """Cut shards into chunks. The last ones, decided first, are small, so that workers can start early."""
    small = max(1, size // 4)
    first = max(0, len(shards) - PARALLEL_CHUNKS * small)
    chunks = [list(shards[start : min(start + size, first)]) for start in range(0, first, size)]
    return chunks + [list(shards[start : start + small]) for start in range(first, len(shards), small)]
