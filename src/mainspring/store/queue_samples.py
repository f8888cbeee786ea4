"""Depths of queues over the last hours, sampled once a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mainspring.store.db import Connection
from mainspring.store.queries import q

KEEP_S = 86_400.0
MAX_QUEUES = 1_000
"""Queues of one sample over all tenants: the deepest."""


@dataclass(frozen=True, slots=True)
class QueueSample:
    """The depth of a queue at one time or in one interval. Without a queue: the interval was sampled."""

    at: datetime
    queue: str | None
    depth: int


async def write_queue_samples(connection: Connection, *, now_ms: int, depths: Sequence[tuple[int, str, int]]) -> None:
    """Write the sample of this minute, unless there is one: (tenant, queue, depth). Over all tenants: a leader duty."""
    deepest = sorted((d for d in depths if d[2] > 0), key=lambda d: -d[2])[:MAX_QUEUES]
    columns = ([d[n] for d in deepest] for n in range(3))
    await connection.execute(q("write_queue_samples"), float(now_ms), *columns, KEEP_S)


async def queue_depth_samples(
    connection: Connection, *, tenant: int, last_s: float, step_s: float, most: int
) -> list[QueueSample]:
    """Return the highest depth of the `most` deepest queues in each interval, in order of time."""
    rows = await connection.fetch(q("queue_depth_samples"), tenant, last_s, step_s, most)
    return [QueueSample(r["at"], r["queue"], r["depth"]) for r in rows]
