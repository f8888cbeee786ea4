"""System overview: counts, recent and upcoming executions, and a health verdict."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.store import alerts, charts, executions, sessions, shards
from mainspring.store import jobs as store_jobs
from mainspring.store.db import Database, database_now_ms
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views

DAY = timedelta(days=1)
RECENT_SHOWN = 50
LATE_MS = 1000
"""The verdict reports a start delay above this."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Counts at one instant of database time. `shards_held` of `shards` have a scheduler."""

    now: datetime
    jobs: int
    paused: int
    running: int
    queued: int
    waiting: int
    failures: int
    workers: int
    suspects: int
    slots: int
    busy: int
    shards: int
    shards_held: int
    late_ms: int | None
    recent: list[wire.Execution]
    upcoming: list[tuple[datetime, UUID, str]]
    firing: int = 0
    oldest_at: datetime | None = None


async def overview(database: Database, *, tenant: int) -> Overview:
    """Everything that the start page shows."""
    page = await execution_views.list_executions(database, tenant=tenant, limit=RECENT_SHOWN)
    # Executions that wait for a later due time are not recent.
    recent = [e for e in page.items if e.state != "waiting" or e.attempt]
    upcoming = await fire_views.upcoming(database, tenant=tenant)
    async with database.connection() as connection:
        now = instant(await database_now_ms(connection))
        jobs, paused = await store_jobs.job_counts(connection, tenant=tenant)
        live = await executions.live_counts(connection, tenant=tenant)
        failures = await executions.failed_count(connection, tenant=tenant, since=now - DAY)
        workers = await sessions.list_workers(connection, tenant=tenant)
        leases = await shards.list_shards(connection)
        firing = await alerts.firing_count(connection, tenant=tenant)
        oldest_at = await charts.oldest_queued(connection, tenant=tenant) if live.get("queued") else None
    alive = [w for w in workers if w.state in ("idle", "busy", "draining")]
    return Overview(
        now=now,
        jobs=jobs,
        paused=paused,
        running=live.get("running", 0),
        queued=live.get("queued", 0),
        waiting=live.get("waiting", 0) + live.get("blocked", 0),
        failures=failures,
        workers=len(alive),
        suspects=sum(w.state == "suspect" for w in workers),
        slots=sum(w.slots for w in alive),
        busy=sum(w.busy for w in alive),
        shards=len(leases),
        shards_held=sum(s.lease_expires_at is not None and s.lease_expires_at > s.now for s in leases),
        late_ms=late_p95(recent),
        recent=recent,
        upcoming=upcoming,
        firing=firing,
        oldest_at=oldest_at,
    )


async def shards_now(database: Database) -> wire.Shards:
    """The scheduler processes, and the owner of each shard."""
    async with database.connection() as connection:
        schedulers = await shards.list_schedulers(connection)
        leases = await shards.list_shards(connection)
    return wire.Shards(schedulers=[*map(_process, schedulers)], shards=[*map(_shard, leases)])


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


def late_p95(recent: list[wire.Execution]) -> int | None:
    """95th percentile of the start delay of recent fires, first attempts only."""
    late = sorted(e.late_ms for e in recent if e.late_ms is not None and e.trigger == "fire" and e.attempt <= 1)
    return late[int(len(late) * 0.95)] if late else None


def verdict(o: Overview) -> tuple[bool, str]:
    """Whether the system is healthy, and one sentence on it."""
    if not o.jobs and not o.recent:
        return True, "Nothing is scheduled yet."
    if o.shards_held < o.shards:
        if not o.shards_held:
            return False, "Nothing fires: no scheduler is alive."
        return False, f"{o.shards - o.shards_held} of {o.shards} shards do not fire: no scheduler holds them."
    stuck = o.queued + o.running
    if not o.workers:
        waiting = f"; {_count(stuck, 'execution')} waiting" if stuck else ""
        return False, f"Fires are decided, but no worker is alive to run them{waiting}."
    troubles = []
    if o.failures:
        troubles.append(f"{_count(o.failures, 'execution')} failed in the last 24 hours")
    if o.suspects:
        troubles.append(f"{_count(o.suspects, 'worker')} missed a heartbeat")
    if o.late_ms is not None and o.late_ms > LATE_MS:
        troubles.append("fires start late")
    if o.firing:
        troubles.append(f"{_count(o.firing, 'alert')} firing")
    if troubles:
        return False, f"{_count(o.jobs, 'job')} scheduled; {_listed(troubles)}."
    on_time = f"All is well: {_count(o.jobs - o.paused, 'job')} on time"
    return True, on_time + (f", {o.paused:,} paused." if o.paused else ".")


def _listed(things: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(things[:-1]), things[-1])))


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
