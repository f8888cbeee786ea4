"""Schedulers driven step by step, and the ledger of what they decided."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import START
from mainspring.views import executions as execution_views
from tests.support.fleet import COPY_JOBS, COPY_VERSIONS
from tests.support.silent_bus import SilentBus

TENANT = 1


async def scheduler_on(database: Database) -> Scheduler:
    scheduler = Scheduler(database, SilentBus(), lease_s=30)
    await step(scheduler)
    return scheduler


async def step(scheduler: Scheduler) -> None:
    await scheduler.lease()
    await scheduler.decide()


def sees_the_time(scheduler: Scheduler, now: datetime) -> None:
    """Its clock goes on though it has not beaten, as on a machine; the virtual one is else only measured by a beat."""
    at = scheduler.clock.monotonic()
    scheduler.clock.observe(now.timestamp() * 1000, at, at)


async def add(database: Database, name: str, **spec: Any) -> None:
    spec.setdefault("schedule", ScheduleSpec(every=60, aligned=True))
    await jobs.create(database, JobSpec(name=name, task=NoopTask(), **spec), tenant=TENANT, by="test")


async def ledger(database: Database, job: str) -> list[tuple[float, str, str | None]]:
    """(seconds after START, state, reason) of every execution of a job, oldest first."""
    page = await execution_views.list_executions(database, tenant=TENANT, job=job, limit=500)
    return [((e.fire_at - START).total_seconds(), e.state, e.reason) for e in reversed(page.items)]


async def finish_all(database: Database) -> None:
    """What is queued is gone, as if workers had run it; the ledger of the scheduler is what counts here."""
    async with database.connection() as connection:
        await connection.execute(
            "WITH gone AS (DELETE FROM executions WHERE state = 'queued' RETURNING *) INSERT INTO history"
            " (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at, due_at,"
            "  finished_at) SELECT execution_id, job_id, tenant_id, version, priority, 1, 'succeeded', trigger,"
            " queue, fire_at, due_at, db_now() FROM gone"
        )


async def copies(database: Database, each: int) -> None:
    """So many more of every job there is."""
    async with database.transaction() as connection:
        await connection.execute(COPY_JOBS, each)
        await connection.execute(COPY_VERSIONS)
