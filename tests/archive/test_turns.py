"""Reads of the archive: one tenant cannot keep another waiting, and what waits is bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.archive import turns
from mainspring.archive.read import ArchiveReader
from mainspring.archive.turns import CONCURRENT_READS, READS_OF_A_TENANT, WAITING, WAITING_OF_A_TENANT, ReadTurns
from mainspring.archive.write import ArchiveWriter
from mainspring.backends.archive_places import FolderPlace
from mainspring.domain.errors import Unavailable
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from tests.conftest import Cluster, started
from tests.support.past_days import OTHER_TENANT, insert_days
from tests.support.processes import until

pytestmark = pytest.mark.anyio

MOST = READS_OF_A_TENANT + WAITING_OF_A_TENANT


class SlowPlace(FolderPlace):
    """Reads of the first tenant's files wait until `open`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open = threading.Event()
        self.reading = 0

    def read(self, name: str, start: int, end: int) -> bytes:
        if "tenant=1/" in name:
            self.reading += 1
            self.open.wait(60)
        return super().read(name, start, end)


@pytest.fixture
async def place(fresh: Database, virtual: VirtualClock, tmp_path: Path) -> AsyncIterator[SlowPlace]:
    await insert_days(fresh)
    found = SlowPlace(tmp_path / "archive")
    writer = ArchiveWriter(fresh, FolderPlace(tmp_path / "archive"))
    for parent in CONTENTS:
        await writer.archive_all(parent, after_s=30 * 86_400.0)
    yield found
    found.open.set()


async def page(database: Database, tenant: int) -> wire.Page[wire.Execution]:
    return await execution_views.list_executions(database, tenant=tenant, limit=5)


async def test_a_tenant_reads_while_another_one_keeps_the_archive_busy(fresh: Database, place: SlowPlace) -> None:
    fresh.archive = ArchiveReader(place)
    busy = [asyncio.create_task(page(fresh, 1)) for _ in range(MOST + 5)]
    await until("the requests beyond the limit to be refused", lambda: sum(t.done() for t in busy) == 5, within_s=30)
    for task in busy:
        if task.done():
            assert isinstance(task.exception(), Unavailable) and task.exception().code == "archive_busy"  # type: ignore[union-attr]
    assert place.reading == READS_OF_A_TENANT
    async with asyncio.timeout(30):
        assert len((await page(fresh, OTHER_TENANT)).items) == 5
    assert sum(t.done() for t in busy) == 5, "the other tenant did not wait for them"
    place.open.set()
    found = [len((await task).items) for task in busy if not task.done() or task.exception() is None]
    assert found == [5] * MOST


async def test_a_cancelled_request_keeps_its_turn_until_its_read_ends(fresh: Database, place: SlowPlace) -> None:
    fresh.archive = ArchiveReader(place)
    first = [asyncio.create_task(page(fresh, 1)) for _ in range(READS_OF_A_TENANT)]
    await until("both to read", lambda: place.reading == READS_OF_A_TENANT, within_s=30)
    for task in first:
        task.cancel()
    await asyncio.wait(first)
    following = asyncio.create_task(page(fresh, 1))
    async with asyncio.timeout(30):
        await page(fresh, OTHER_TENANT)
    assert place.reading == READS_OF_A_TENANT, "no third read of the tenant began"
    place.open.set()
    assert len((await following).items) == 5


async def test_turns_go_round_the_tenants_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    all_turns, order = ReadTurns(), list[int]()

    async def read(tenant: int) -> None:
        await all_turns.take(tenant)
        order.append(tenant)

    await asyncio.gather(*(read(tenant) for tenant in (1, 1, 2)))
    assert len(order) == CONCURRENT_READS
    waiting = [asyncio.create_task(read(tenant)) for tenant in (1, 1, 1, 2, 3)]
    await asyncio.sleep(0)
    for ended in (2, 1, 1, 2, 3, 1, 1, 1):
        all_turns.give_back(ended)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order[CONCURRENT_READS:] == [2, 1, 3, 1, 1]

    full = [asyncio.create_task(read(tenant)) for tenant in range(WAITING + CONCURRENT_READS)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many reads of the archive wait"):
        await read(-1)
    full[-1].cancel()
    await asyncio.wait(full[-1:])
    monkeypatch.setattr(turns, "WAIT_S", 0.01)
    with pytest.raises(Unavailable, match="too many reads of the archive wait"):
        await read(-1)
    for tenant in range(WAITING + CONCURRENT_READS - 1):
        all_turns.give_back(tenant)
    await asyncio.gather(*full[:-1])
    assert not all_turns._waiting and not all_turns._running


async def test_a_refused_request_gets_503_and_when_to_retry(fresh: Database, place: SlowPlace, tmp_path: Path) -> None:
    async with fresh.connection() as connection:
        ids = [r[0] for r in await connection.fetch("SELECT DISTINCT last_id FROM archives WHERE tenant_id = 1")]
    async with started(fresh.dsn, archive_url=str(tmp_path / "archive")) as cluster:
        archive = cluster.server.database.archive
        assert isinstance(archive, ArchiveReader)
        archive._place = place
        await refused_when_full(cluster, archive, ids[0], place)


async def refused_when_full(cluster: Cluster, archive: ArchiveReader, archived: UUID, place: SlowPlace) -> None:
    for _ in range(READS_OF_A_TENANT):
        await archive._turns.take(1)
    waiting = [asyncio.create_task(archive._turns.take(1)) for _ in range(WAITING_OF_A_TENANT)]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {cluster.token}"}, trust_env=False) as http:
        url = f"{cluster.url}/api/v1/executions/{archived}"
        answer = await http.get(url)
        assert answer.status_code == 503 and int(answer.headers["Retry-After"]) >= 1, answer.text
        assert answer.json()["code"] == "archive_busy"
        for _ in range(MOST):
            archive._turns.give_back(1)
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        place.open.set()
        assert (await http.get(url)).status_code == 200
