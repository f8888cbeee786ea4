"""System overview: counts, recent and upcoming executions, what needs an operator; owners of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.start_delay import OwnLimits, Started, own_delay_ms
from mainspring.store import attention as store_attention
from mainspring.store import executions, holds, sessions, shards
from mainspring.store import jobs as store_jobs
from mainspring.store.db import Database, database_now_ms
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views.attention import Attention, attention_now
from mainspring.views.queues import depths_of
from mainspring.views.runs import RunViews

HOURS = 24
RECENT_SHOWN = 50
RUNNING_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts at one instant of database time. `shards_held` of `shards` have a scheduler.

    `delays` are the start delays of the latest fires in milliseconds, oldest first; `failed_by_hour` are the failures
    of the last 24 hours, oldest first.
    """

    now: datetime
    jobs: int
    paused: int
    running: int
    queued: int
    waiting: int
    workers: int
    suspects: int
    slots: int
    busy: int
    shards: int
    shards_held: int
    recent: Sequence[wire.Execution]
    upcoming: Sequence[tuple[datetime, UUID, str]]
    delays: Sequence[int] = ()
    failed_by_hour: Sequence[int] = ()
    attention: Attention = field(default_factory=Attention)
    active: Sequence[wire.Execution] = ()
    """The executions that run now, with their progress."""
    held_at: datetime | None = None
    """Since when firing is held after a restore."""
    exact: bool = True
    """Whether `queued` and `waiting` are counts; otherwise estimates."""

    @property
    def failures(self) -> int:
        return sum(self.failed_by_hour)

    @property
    def late_ms(self) -> int | None:
        """95th percentile of the start delay of the latest fires."""
        return percentile(self.delays, 95)


async def overview(database: Database, runs: RunViews, *, tenant: int) -> Overview:
    """Everything that the start page shows."""
    page = await execution_views.list_executions(database, tenant=tenant, limit=RECENT_SHOWN)
    # Executions that wait for a later due time are not recent.
    recent = [e for e in page.items if e.state != "waiting" or e.attempt]
    active = await execution_views.list_executions(database, tenant=tenant, limit=RUNNING_SHOWN, states=("running",))
    upcoming = await fire_views.upcoming(database, tenant=tenant)
    async with database.connection() as connection:
        now = instant(await database_now_ms(connection))
        jobs, paused = await store_jobs.job_counts(connection, tenant=tenant)
        live = await executions.live_counts(connection, tenant=tenant)
        depths = await depths_of(connection, tenant=tenant)
        failed = await store_attention.failures_by_hour(connection, tenant=tenant, now=now, hours=HOURS)
        workers = await sessions.list_workers(connection, tenant=tenant)
        leases = await shards.list_shards(connection)
        hold = await holds.open_hold(connection)
        fires = _first_starts(recent)
        limits = await store_attention.own_limits(connection, tenant=tenant, job_ids=[*{e.job_id for e in fires}])
    alive = [w for w in workers if w.state in ("idle", "busy", "draining")]
    return Overview(
        now=now,
        jobs=jobs,
        paused=paused,
        running=live.running,
        queued=sum(line.depth for line in depths),
        waiting=live.waiting,
        workers=len(alive),
        suspects=sum(w.state == "suspect" for w in workers),
        slots=sum(w.slots for w in alive),
        busy=sum(w.busy for w in alive),
        shards=len(leases),
        shards_held=sum(s.lease_expires_at is not None and s.lease_expires_at > s.now for s in leases),
        recent=recent,
        upcoming=upcoming,
        delays=start_delays(recent, limits),
        failed_by_hour=failed,
        attention=await attention_now(database, runs, tenant=tenant, paused=bool(paused)),
        active=active.items,
        held_at=None if hold is None else hold.held_at,
        exact=live.exact and all(line.exact for line in depths),
    )


async def shards_now(database: Database, *, named: bool = True) -> wire.Shards:
    """The scheduler processes, and the owner of each shard. Without `named`, by id: names and hosts are left out."""
    async with database.connection() as connection:
        schedulers = await shards.list_schedulers(connection)
        leases = await shards.list_shards(connection)
    found = wire.Shards(schedulers=[*map(_process, schedulers)], shards=[*map(_shard, leases)])
    if named:
        return found
    owners = {lease.shard: lease.owner for lease in leases}
    return wire.Shards(
        schedulers=[msgspec.structs.replace(p, name=str(p.scheduler_id), host="") for p in found.schedulers],
        shards=[msgspec.structs.replace(s, owner=_text(owners[s.shard])) for s in found.shards],
    )


def _text(owner: UUID | None) -> str | None:
    return None if owner is None else str(owner)


def _process(lease: shards.SchedulerLease) -> wire.SchedulerProcess:
    alive: Literal["active", "draining"] = "draining" if lease.draining else "active"
    return wire.SchedulerProcess(
        scheduler_id=lease.scheduler.scheduler_id,
        name=lease.scheduler.name,
        state=alive if lease.lease_expires_at > lease.now else "lost",
        host=lease.scheduler.host,
        version=lease.scheduler.version,
        shards=lease.shards,
        started_at=lease.started_at,
        seen_at=lease.seen_at,
    )


def _shard(lease: shards.ShardLease) -> wire.Shard:
    owner = None if lease.owner is None else lease.owner_name or str(lease.owner)
    lag_s = max(0.0, (lease.now - lease.watermark).total_seconds())
    return wire.Shard(
        shard=lease.shard,
        owner=owner,
        epoch=lease.epoch,
        lease_expires_at=lease.lease_expires_at,
        watermark=lease.watermark,
        lag_s=lag_s,
    )


def _first_starts(recent: Sequence[wire.Execution]) -> list[wire.Execution]:
    return [e for e in recent if e.started_at is not None and e.trigger == "fire" and e.attempt <= 1]


def start_delays(recent: Sequence[wire.Execution], limits: Mapping[UUID, OwnLimits]) -> list[int]:
    """Start delays of the first attempts of fires, oldest first, without the waits for their jobs' own limits."""
    found = []
    for e in sorted(_first_starts(recent), key=lambda e: e.execution_id):
        assert e.started_at is not None
        others = [
            Started(o.started_at, o.finished_at)
            for o in recent
            if o.job_id == e.job_id and o.execution_id != e.execution_id and o.started_at is not None
        ]
        own = limits.get(e.job_id, OwnLimits())
        if (delay := own_delay_ms(e.due_at, e.queued_at, e.started_at, own, others)) is not None:
            found.append(delay)
    return found


def percentile(values: Sequence[int], share: int) -> int | None:
    """The smallest value that at least `share` percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)] if ordered else None
