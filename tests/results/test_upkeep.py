"""What was kept long enough is forgotten: runs with their steps and events, backfills."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule import ScheduleSpec
from mainspring.intake import backfills, jobs
from mainspring.results.rescue import Rescue
from mainspring.store.db import Database
from tests.clocks import START, VirtualClock
from tests.runs.bench import TENANT, Bench

pytestmark = pytest.mark.anyio


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))


def rescue(bench: Bench, **more: Any) -> Rescue:
    return Rescue(bench.database, bench.settler, leads=lambda: True, **more)


async def test_runs_are_kept_for_ninety_days_after_their_end(fresh: Database, virtual: VirtualClock) -> None:
    bench = Bench(fresh)
    steps: dict[str, Any] = {"a": {}, "sent": {"event": {"name": "go"}}}
    old, waiting = await bench.begin("flow", steps), await bench.start("flow")
    await bench.runs.event(old.run_id, "go", None, tenant=TENANT, by="test")
    await bench.work()
    await virtual.advance(days=89)
    await rescue(bench).keep()  # makes today's partitions
    young = await bench.start("flow")
    await bench.runs.cancel(young.run_id, tenant=TENANT, by="test")
    await rescue(bench).keep()
    assert await count(fresh, "runs") == 3
    await virtual.advance(days=1, seconds=1)
    await rescue(bench).keep()
    assert (await count(fresh, "runs"), await count(fresh, "run_steps"), await count(fresh, "run_events")) == (2, 4, 0)
    with pytest.raises(NotFound):
        await bench.get(old)
    assert (await bench.get(waiting)).state == "running", "what has not ended is kept, however old"


async def test_many_are_forgotten_in_portions(fresh: Database, virtual: VirtualClock) -> None:
    bench = Bench(fresh)
    await bench.apply("flow", {"a": {}})
    for _ in range(120):
        await bench.start("flow")
    await bench.work()
    await virtual.advance(days=8)
    await rescue(bench, keep_runs_s=7 * 86_400.0).keep()
    assert await count(fresh, "runs") == 0 and await count(fresh, "run_steps") == 0


async def test_backfills_are_forgotten_too(fresh: Database, virtual: VirtualClock) -> None:
    bench = Bench(fresh)
    spec = JobSpec(name="hourly", task=NoopTask(), schedule=ScheduleSpec(every=3600, aligned=True))
    await jobs.create(fresh, spec, tenant=TENANT, by="test")
    request = wire.BackfillRequest(from_=START.replace(hour=1), to=START.replace(hour=3))
    made = await backfills.create(fresh, "hourly", request, tenant=TENANT, by="test")
    await backfills.cancel(fresh, made, tenant=TENANT, by="test")
    await virtual.advance(days=91)
    await rescue(bench).keep()
    assert await count(fresh, "backfills") == 0
