"""Queues: settings, depth, workers, limits and scaling signals."""

from __future__ import annotations

import math
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.domain.errors import invalid
from mainspring.domain.placement.reservation import lay_out
from mainspring.domain.queue import DEFAULTS, QueueSettings
from mainspring.store import evictions, lines, queues, reservations, trigger_topics, why
from mainspring.store.db import Connection, Database, database_now_ms

MAX_COUNTED = 10_000
"""A line is counted up to here; deeper ones are estimated."""
MAX_LIMIT_KEYS = 200
TARGET_UTILIZATION = 0.7
"""The share of a queue's slots that should be in use: less is idle, more has no room for a burst."""
DEFAULT_QUEUES = ("short", "long")
FLOW_S = 300.0
"""Rates are averages over the last five minutes."""
FLOW_DUE_S = 600.0
"""Only executions due in the last ten minutes count: the query is bounded whatever history holds."""
FLOW_ROWS = 3_000


async def overview(database: Database, *, tenant: int) -> wire.Queues:
    """Every queue with settings, workers or executions; and the limits in use."""
    async with database.connection() as connection:
        settings = await queues.queue_settings(connection, tenant=tenant)
        isolation = await queues.min_isolation(connection, tenant=tenant, queue="")
        depths = await depths_of(connection, tenant=tenant)
        servers = await why.live_sessions(connection, tenant=tenant)
        running = await queues.count_running(connection, tenants=[tenant])
        key_ids = await queues.limited_keys(connection, tenant=tenant, limit=MAX_LIMIT_KEYS)
        keys = await lines.limit_holders(connection, tenant=tenant, limit_ids=key_ids) if key_ids else {}
    names = {*DEFAULT_QUEUES, *settings, *(d.queue for d in depths), *(name for _, name in running)}
    names.update(name for server in servers for name in server.queues)
    return wire.Queues(
        min_isolation=isolation,
        items=[
            _queue(name, settings.get(name, DEFAULTS), depths, servers, running.get((tenant, name), 0))
            for name in sorted(names)
        ],
        limits=[
            wire.LimitState(
                kind="concurrency" if k.per_s is None else "rate", key=k.key, limit=k.most, per_s=k.per_s,
                next_at=k.next_at,
                holders=[
                    wire.LimitHolder(execution_id=h.execution_id, job=h.job, started_at=h.started_at)
                    for h in k.holders
                ],
            )
            for k in sorted(keys.values(), key=lambda k: (k.kind, k.key))
        ],
    )  # fmt: skip


async def flow(database: Database, *, tenant: int) -> dict[str, queues.Flow]:
    """Executions per minute into and out of each queue."""
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        since, until = (UUID(int=ms << 80) for ms in (now_ms - int(FLOW_DUE_S * 1000), now_ms + 60_000))
        return await queues.queue_flow(
            connection, tenant=tenant, since=since, until=until, most=FLOW_ROWS, seconds=FLOW_S
        )


async def scaling(database: Database, *, tenant: int, target: float = TARGET_UTILIZATION) -> wire.Scaling:
    """Scaling signals of every queue, for autoscalers."""
    if not 0.05 <= target <= 1:
        raise invalid("/target", f"target {target:g} is out of range", hint="between 0.05 and 1, such as 0.7")
    found = await overview(database, tenant=tenant)
    async with database.connection() as connection:
        rows = await reservations.open_reservations(connection, tenant=None)
        layout = lay_out([row.reservation for row in rows], await evictions.active_workers(connection) if rows else [])
        now_ms = await database_now_ms(connection)
        lags = await trigger_topics.topic_lags(connection, tenant=tenant)
    kept: dict[str, int] = {}
    for r in (row.reservation for row in rows):
        if r.tenant == tenant and r.queue is not None and r.start_ms <= now_ms:
            kept[r.queue] = kept.get(r.queue, 0) + sum(layout[r.reservation_id].values())
    return wire.Scaling(
        queues={
            q.name: wire.QueueLoad(
                depth=q.depth, oldest_s=q.oldest_s, running=q.running, workers=q.workers, slots=q.slots,
                reserved=kept.get(q.name, 0), utilization=round(q.running / q.slots, 4) if q.slots else 0.0,
                wanted_slots=math.ceil((q.depth + q.running + lags.get(q.name, 0)) / target),
                topic_lag=lags.get(q.name, 0),
            )
            for q in found.items
        }
    )  # fmt: skip


async def depths_of(connection: Connection, *, tenant: int | None) -> list[queues.Depth]:
    """Depth by line, counted up to a bound; lines that reach it share the rest of the estimate."""
    found = await queues.line_depths(connection, tenant=tenant, most=MAX_COUNTED)
    by_line: dict[int, int] = {}
    for depth in found:
        by_line[depth.line_id] = by_line.get(depth.line_id, 0) + depth.depth
    bounded = {line for line, n in by_line.items() if n >= MAX_COUNTED}
    if not bounded:
        return found
    beyond = max(0, await queues.queued_estimate(connection) - sum(by_line.values()))
    factor = 1 + beyond / sum(by_line[line] for line in bounded)
    return [
        msgspec.structs.replace(d, depth=round(d.depth * factor), exact=False) if d.line_id in bounded else d
        for d in found
    ]


def _queue(
    name: str, settings: QueueSettings, depths: list[queues.Depth], servers: list[why.LiveWorker], running: int
) -> wire.Queue:
    mine = [d for d in depths if d.queue == name]
    serving = [s for s in servers if name in s.queues]
    by_priority: dict[str, int] = {}
    for depth in sorted(mine, key=lambda d: -d.priority):
        by_priority[str(depth.priority)] = by_priority.get(str(depth.priority), 0) + depth.depth
    return wire.Queue(
        name=name, settings=settings, depth=sum(d.depth for d in mine), exact=all(d.exact for d in mine),
        by_priority=by_priority, oldest_s=max((d.oldest_s for d in mine), default=0.0), running=running,
        workers=len(serving), slots=sum(s.slots for s in serving),
    )  # fmt: skip
