"""The disk of PostgreSQL fills up under load: nothing is acknowledged meanwhile, and all goes on when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from tests.support.fleet import fleet, load

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

SIZE = "400m"
REQUEST = wire.RunNow(params={"text": "x" * 4000})
"""Parameters large enough that a table soon needs another page."""
RESUMED_S = 10.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "d"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Write until nothing fits any more; PostgreSQL writes meanwhile."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass


class Submitting:
    """Submits one execution after another. Its client repeats a request for some seconds."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.acknowledged: list[UUID] = []
        self.errors: list[MainspringError] = []
        self.refused = asyncio.Event()
        self.accepted = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                self.acknowledged.append((await self._client.trigger("manual", REQUEST)).execution_id)
                self.accepted.set()
            except MainspringError as error:
                self.errors.append(error)
                self.accepted.clear()
                self.refused.set()


@pytest.mark.fault("F12")
async def test_a_full_disk_acknowledges_nothing_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(small_disk / "m", settings={"shared_buffers": "32MB", "max_wal_size": "96MB"})
    await server.start()
    url, filler = server.dsn, small_disk / "filler"
    try:
        await migrate(url)
        await load(url, each=32)
        async with Database(url, size=2) as database, database.connection() as connection:
            token = await issue_token(connection, tenant=1, name="t", scopes=("admin",))
            await jobs.create(database, JobSpec(name="manual", task=NoopTask()), tenant=1, by="test")
        async with fleet(server, url, tmp_path, schedulers=1) as running:
            api = running.start(api=True)
            await running.balanced(2)
            async with AsyncClient(f"http://127.0.0.1:{running.ports[api]}", token) as client:
                submitting = Submitting(client)
                task = asyncio.create_task(submitting.run())
                await asyncio.wait_for(submitting.accepted.wait(), 30)
                fill(filler)
                await asyncio.wait_for(submitting.refused.wait(), 60)
                filler.unlink()
                if server.pid is None:  # it could not write its log, which it survives by its own recovery
                    await server.start()
                free_s = await running.now_s()
                await running.decided(free_s + 0.5, within_s=RESUMED_S)
                resumed_s = await running.now_s() - free_s
                await asyncio.wait_for(submitting.accepted.wait(), 30)
                task.cancel()
            rows = await running.ask("SELECT execution_id FROM all_executions WHERE trigger <> 'fire'")
            assert not set(submitting.acknowledged) - {row["execution_id"] for row in rows}
            assert all(isinstance(error, Unavailable) for error in submitting.errors), submitting.errors[:3]
            verdict = await running.judge("job-")
            verdict.demand("disk full", acknowledged=len(submitting.acknowledged), resumed_s=round(resumed_s, 2))
    finally:
        await server.stop()
