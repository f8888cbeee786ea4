"""Failover: the primary is killed under load, its synchronous standby promoted, and the old one returns."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from uuid import UUID

import pytest

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from mainspring.store.primary import NoPrimary, Primary, urls_by_host
from tests.support.fleet import fleet, load
from tests.support.standby import pair

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

RESUMED_S = 10.0


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u:p@a/x", ["postgresql://u:p@a/x"]),
        ("postgresql://u:p@a:1,b:2/x?sslmode=require", ["postgresql://u:p@a:1/x?sslmode=require", "postgresql://u:p@b:2/x?sslmode=require"]),
        ("postgresql://u@/x?host=a,b&port=1,2", ["postgresql://u@/x?host=a&port=1", "postgresql://u@/x?host=b&port=2"]),
        ("postgresql://u@/x?host=a,b", ["postgresql://u@/x?host=a&port=5432", "postgresql://u@/x?host=b&port=5432"]),
    ],
)  # fmt: skip
def test_urls_with_several_hosts(url: str, found: list[str]) -> None:
    assert urls_by_host(url) == found


async def submit_until(stop: asyncio.Event, url: str, token: str) -> list[UUID]:
    """Submit executions one after another, across the outage; return those that were acknowledged."""
    acknowledged: list[UUID] = []
    async with AsyncClient(url, token) as client:
        while not stop.is_set():
            try:
                acknowledged.append((await client.trigger("manual")).execution_id)
            except MainspringError:
                await asyncio.sleep(0)
    return acknowledged


@pytest.mark.fault("F28")
async def test_a_killed_primary_loses_and_doubles_nothing_and_is_refused_when_it_returns(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ms-") as name:
        async with pair(Path(name)) as servers:
            url = servers.url()
            await migrate(url)
            await load(url, each=32)
            async with Database(url, size=2) as database, database.connection() as connection:
                token = await issue_token(connection, tenant=1, name="t", scopes=("admin",))
                await jobs.create(database, JobSpec(name="manual", task=NoopTask()), tenant=1, by="test")
            async with fleet(servers.first, url, tmp_path, schedulers=2) as running:
                api = running.start(api=True)
                await running.balanced(3)
                stop = asyncio.Event()
                address = f"http://127.0.0.1:{running.ports[api]}"
                submitting = asyncio.create_task(submit_until(stop, address, token))
                await running.decided(await running.now_s() + 2)
                assert servers.first.pid is not None
                os.kill(servers.first.pid, signal.SIGKILL)
                await servers.first.wait_died()
                await servers.promote()
                promoted_s = await running.now_s()
                await running.decided(promoted_s + 0.5, within_s=RESUMED_S)
                resumed_s = await running.now_s() - promoted_s
                await servers.first.start()  # the stale primary, which accepts connections again
                knowing = Primary(url)
                connection = await knowing.connect()
                assert connection.get_settings() is not None
                await connection.close()
                knowing.urls = knowing.urls[:1] * 2
                with pytest.raises(NoPrimary, match="a stale primary, on timeline 1 of 2"):
                    await knowing.connect()
                running.url = servers.second.dsn  # for the checks
                late = running.start(through=url)  # a process that has not seen the failover
                await running.balanced(4)
                await running.decided(await running.now_s() + 2)
                stop.set()
                acknowledged = await submitting
                rows = await running.ask("SELECT execution_id FROM all_executions WHERE trigger <> 'fire'")
                lost = set(acknowledged) - {row["execution_id"] for row in rows}
                assert not lost
                assert len(acknowledged) > 10
                assert "Traceback" not in running.log(late)
                verdict = await running.judge("job-")
                verdict.demand("primary killed", acknowledged=len(acknowledged), resumed_s=round(resumed_s, 2))
