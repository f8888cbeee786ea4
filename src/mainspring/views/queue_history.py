"""Depth of queues over the last hours, for charts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mainspring.clock import instant
from mainspring.store.db import Database, database_now_ms
from mainspring.store.queue_samples import QueueSample, queue_depth_samples

HOURS = 6
STEP_S = 180
MAX_QUEUES = 12


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """The highest depth of each queue in intervals of `step_s` from `start_at` on; None where nothing was sampled."""

    start_at: datetime
    step_s: int
    depths: dict[str, list[int | None]]


async def depth_history(database: Database, *, tenant: int) -> QueueHistory:
    """Return the last hours of the deepest queues, by name. Queues that were always empty are left out."""
    async with database.connection() as connection:
        now_ms = await database_now_ms(connection)
        samples = await queue_depth_samples(
            connection, tenant=tenant, last_s=HOURS * 3600.0, step_s=float(STEP_S), most=MAX_QUEUES
        )
    return history_of(samples, now_ms=int(now_ms))


def history_of(samples: list[QueueSample], *, now_ms: int) -> QueueHistory:
    """Arrange samples by queue and interval; the last interval is the current one."""
    count = HOURS * 3600 // STEP_S
    start_s = (now_ms // 1000 // STEP_S - count + 1) * STEP_S
    known: list[int | None] = [None] * count
    places = [(int(s.at.timestamp()) - start_s) // STEP_S for s in samples]
    for sample, place in zip(samples, places, strict=True):
        if sample.queue is None and 0 <= place < count:
            known[place] = 0
    depths: dict[str, list[int | None]] = {}
    for sample, place in zip(samples, places, strict=True):
        if sample.queue is not None and 0 <= place < count:
            depths.setdefault(sample.queue, list(known))[place] = sample.depth
    return QueueHistory(instant(start_s * 1000), STEP_S, dict(sorted(depths.items())))
