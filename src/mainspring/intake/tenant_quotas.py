"""Quotas of a tenant, checked in the transaction that would exceed them.

An error names the quota, its limit, the current value and who can raise it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from weakref import WeakKeyDictionary

from mainspring.domain.duration import format_duration
from mainspring.domain.errors import Forbidden, Problem, invalid
from mainspring.domain.principal import Principal
from mainspring.domain.schedule.schedule import Resolved
from mainspring.store import tenants
from mainspring.store.db import Connection, Database
from mainspring.views.schedules import fires_of

EXAMINED_FIRES = 50
"""The interval of a schedule is the shortest one between its next fires."""
SUSPENDED = "the tenant is suspended"
RAISED_BY = "a cluster administrator can raise it: mainspring tenants edit"


async def reserve_jobs(connection: Connection, count: int, *, tenant: int) -> None:
    """Refuse new jobs beyond the tenant's quota. Call it before any shard is locked."""
    if not count or (await tenants.tenant_quotas(connection, tenant=tenant)).max_jobs is None:
        return
    most = (await tenants.lock_tenant(connection, tenant=tenant)).max_jobs
    current = await tenants.count_jobs(connection, tenant=tenant)
    if most is not None and current + count > most:
        raise exceeded("max_jobs", "jobs", most, current, count)


async def check_schedules(
    connection: Connection, schedules: Iterable[Resolved | None], *, tenant: int, now_ms: int
) -> None:
    """Refuse schedules that fire too often, or never end where an end is required."""
    found = [when for when in schedules if when is not None and when.key is not None]
    if not found:
        return
    quotas = await tenants.tenant_quotas(connection, tenant=tenant)
    for when in found:
        if quotas.end_required and when.end_ms is None:
            message = "the tenant requires schedules to end (quota end_required)"
            raise invalid("/schedule/end_at", message, hint=f"add end_at; {RAISED_BY}", code="quota_exceeded")
        if quotas.min_interval_s is None:
            continue
        fires = fires_of(when, after_ms=now_ms, count=EXAMINED_FIRES)
        gap_s = min((later - earlier for earlier, later in pairwise(fires)), default=float("inf")) / 1000
        if gap_s < quotas.min_interval_s:
            least = format_duration(quotas.min_interval_s)
            message = (
                f"the schedule fires every {format_duration(gap_s)}; the minimum interval of the tenant is {least}"
                " (quota min_interval)"
            )
            raise invalid("/schedule", message, hint=f"use {least} or more; {RAISED_BY}", code="quota_exceeded")


def limits_queue(by: str) -> bool:
    """Whether the tenant of a principal has a quota of executions that have not started."""
    return isinstance(by, Principal) and by.queue_is_limited


@asynccontextmanager
async def reserved_queue(database: Database, count: int, *, tenant: int, by: str) -> AsyncIterator[None]:
    """Hold room for submissions in the tenant's quota of executions that have not started, while they are written."""
    if not limits_queue(by):
        yield
        return
    async with _one_at_a_time(database), database.transaction() as connection:
        most = (await tenants.lock_tenant(connection, tenant=tenant)).max_queued
        if most is not None:
            current = await tenants.count_pending(connection, tenant=tenant, most=most + 1)
            if current + count > most:
                raise exceeded("max_queued", "executions that have not started", most, current, count)
        yield


async def start_refusal(connection: Connection, *, tenant: int) -> str | None:
    """Why a trigger may start nothing now: its tenant is suspended, or its queue is full. Needs a transaction.

    Until it ends, a suspension waits, and so does whatever else counts against a quota that the tenant has.
    """
    if not await tenants.limits_queue(connection, tenant=tenant):
        return SUSPENDED if await tenants.share_tenant(connection, tenant=tenant) else None
    row = await tenants.lock_tenant(connection, tenant=tenant)
    if row.suspended_at is not None:
        return SUSPENDED
    if (most := row.max_queued) is None:
        return None
    current = await tenants.count_pending(connection, tenant=tenant, most=most + 1)
    if current + 1 > most:
        return exceeded("max_queued", "executions that have not started", most, current, 1).message
    return None


_LOCKS: WeakKeyDictionary[Database, asyncio.Lock] = WeakKeyDictionary()


def _one_at_a_time(database: Database) -> asyncio.Lock:
    """Of a process, one request waits for the row: what it writes then needs another connection of the same pool."""
    return _LOCKS.setdefault(database.root, asyncio.Lock())


def exceeded(quota: str, noun: str, most: int, current: int, count: int) -> Forbidden:
    message = f"the tenant's quota {quota} allows {most:,} {noun}; it has {current:,}, and this adds {count:,}"
    return Forbidden(f"{message}; {RAISED_BY}", code="quota_exceeded", problems=(Problem("", message, RAISED_BY),))
