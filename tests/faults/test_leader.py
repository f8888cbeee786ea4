"""Leader duties: exactly one scheduler has them, by its metrics, and another one soon after its death."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store.db import Database
from tests.support.fleet import Fleet
from tests.support.machine_noise import measured_noise

pytestmark = pytest.mark.fault

LEADS = re.compile(r"^mainspring_scheduler_is_leader (\S+)$", re.MULTILINE)


@asynccontextmanager
async def servers(durable: EmbeddedServer, url: str, folder: Path, count: int) -> AsyncIterator[Fleet]:
    """Processes that have an api beside their scheduler, so that each can be asked for its metrics."""
    running = Fleet(durable, url, folder, 5.0)
    try:
        for _ in range(count):
            running.start(api=True)
        await running.balanced(count)
        yield running
    finally:
        running.end()


async def leaders(running: Fleet, token: str) -> dict[str, float]:
    found = {}
    async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
        for name, port in running.ports.items():
            text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            found[name] = float(LEADS.findall(text)[0])
    return found


async def one_leader(running: Fleet, token: str, *, within_s: float) -> str:
    """Until the gauges of all living schedulers sum to one."""
    async with asyncio.timeout(within_s):
        while sum((found := await leaders(running, token)).values()) != 1:
            await running.ask("SELECT pg_sleep(0.05)")
    return max(found, key=lambda name: found[name])


@pytest.mark.requirement(31)
async def test_the_leader_is_killed_and_succeeded_within_the_lease(
    durable: EmbeddedServer, loaded: str, tmp_path: Path
) -> None:
    async with Database(loaded, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="test", scopes=("read",))
    async with servers(durable, loaded, tmp_path, 3) as running:
        leader = await one_leader(running, token, within_s=5)
        await running.kill(leader)
        successor = await one_leader(running, token, within_s=running.lease_s)
        assert successor != leader
        await running.drain(successor)
        await one_leader(running, token, within_s=2)


@pytest.mark.requirement(27)
async def test_a_job_created_for_in_two_seconds_fires_on_time(
    durable: EmbeddedServer, loaded: str, tmp_path: Path
) -> None:
    """Creating a job wakes the owner of its shard, for one-time and recurring jobs, on any of three schedulers.

    On time is within a tenth of a second, and what the machine itself was late then.
    """
    async with (
        servers(durable, loaded, tmp_path, 3) as running,
        Database(loaded, size=4) as database,
        measured_noise(loaded) as noise,
    ):
        begun_s = await running.now_s()
        soon = datetime.fromtimestamp(int(await running.now_s()) + 3, UTC).isoformat()
        for n in range(12):
            at = ScheduleSpec(at=soon) if n % 2 else ScheduleSpec(every=3600, start_at=soon)
            await jobs.create(database, JobSpec(name=f"soon-{n}", task=NoopTask(), schedule=at), tenant=1, by="test")
        await running.until(
            "all have fired",
            "SELECT count(*) = 12 FROM executions e JOIN jobs j USING (job_id)"
            " WHERE j.name LIKE 'soon-%' AND e.state = 'queued'",
        )
        rows = await running.ask(
            "SELECT extract(epoch FROM e.queued_at - e.fire_at)::float8 AS late FROM executions e"
            " JOIN jobs j USING (job_id) WHERE j.name LIKE 'soon-%'"
        )
        delay_s = noise.worst_between(begun_s, await running.now_s())
    late = [row["late"] for row in rows]
    assert min(late) >= 0 and max(late) < 0.1 + 2 * delay_s, (late, delay_s)
