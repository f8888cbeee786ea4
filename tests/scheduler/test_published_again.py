"""A fire that is published again is the same execution: its id follows from the job and the instant."""

from __future__ import annotations

import pytest

from mainspring.clock import millis
from mainspring.domain.execution import execution_id, fire_key
from mainspring.scheduler.service import Scheduler
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views.refs import job_row
from tests.support.scheduling import add, step
from tests.support.settling import TENANT, SettlingBench
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

FIRE_MS = millis(START) + 60_000


@pytest.mark.requirement(36)
async def test_a_fire_published_a_hundred_times_is_one_row_and_runs_once(
    fresh: Database, virtual: VirtualClock
) -> None:
    """The watermark is turned back before each publication, so that only the id prevents a second execution."""
    await add(fresh, "minutely", overlap="allow")
    await virtual.advance(seconds=60)
    published = 0
    for _ in range(100):
        async with fresh.connection() as connection:
            await connection.execute("UPDATE shards SET watermark = $1, owner = NULL, lease_expires_at = NULL", START)
            await connection.execute("DELETE FROM schedulers")
        await step(Scheduler(fresh, SilentBus(), lease_s=30))
        async with fresh.connection() as connection:
            published += await connection.fetchval("SELECT min(watermark) FROM shards") >= virtual.now
    assert published == 100, "each time the instant was decided again"

    job = await job_row(fresh, "minutely", tenant=TENANT)
    async with fresh.connection() as connection:
        rows = await connection.fetch("SELECT execution_id FROM all_executions WHERE job_id = $1", job.job_id)
    assert [row["execution_id"] for row in rows] == [execution_id(job.job_id, FIRE_MS, fire_key(FIRE_MS))]

    bench = SettlingBench(fresh)
    session = await bench.session()
    (claimed,) = await bench.claim(session, slots=100)
    assert await bench.end(claimed["execution_id"], session, "succeeded", attempt=claimed["attempt"])
    assert await bench.claim(session, slots=100) == []
