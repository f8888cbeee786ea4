"""The cache of status reads that processes share, over a real Redis that is killed, frozen and started empty."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from mainspring.api.auth import issue_token
from mainspring.api.read_cache import TTL_S, Encoded, Key, Label, ReadCache, execution_label, job_label
from mainspring.backends.engines import open_cache
from mainspring.backends.redis_cache import RedisCache
from mainspring.domain.errors import Invalid
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.api_processes import api_processes
from tests.support.engine_servers import RedisServer
from tests.support.processes import until, until_async

pytestmark = pytest.mark.anyio

REPORT = Key(1, "/api/v1/jobs/report?")
EXECUTION = uuid4()
LABELS = (job_label(1, "report"), ("shard", 3), execution_label(EXECUTION))


class Rows:
    """The database: values by key, and when each value was replaced."""

    def __init__(self) -> None:
        self.values: dict[Key, int] = {}
        self.replaced: dict[tuple[Key, int], float] = {}
        self.loads = 0

    def write(self, key: Key) -> None:
        now = self.values.get(key, 0)
        self.replaced[key, now] = time.monotonic()
        self.values[key] = now + 1

    def oldest_allowed(self, key: Key, at: float) -> int:
        """The value that a reader at that time may see at the worst: one that was replaced a second before."""
        value = self.values.get(key, 0)
        while value and at - self.replaced[key, value - 1] < 1.0:
            value -= 1
        return value


class Process:
    """The cache of an api process, without messages from the others."""

    def __init__(self, rows: Rows, url: str) -> None:
        self._rows = rows
        shared = open_cache(url, prefix="mainspring-test")
        assert shared is not None
        self.shared: RedisCache = shared
        self.reads = ReadCache(shared=self.shared)

    async def read(self, key: Key = REPORT, labels: Iterable[Label] = LABELS, seen_after: str | None = None) -> int:
        async def load() -> tuple[Encoded, Iterable[Label]]:
            self._rows.loads += 1
            value = self._rows.values.get(key, 0)
            await asyncio.sleep(0)  # the change of another task may arrive while the response is on its way
            return Encoded(str(value).encode(), ((b"etag", b'"1"'),)), labels

        found = await self.reads.get(key, load, seen_after=seen_after, kind="job")
        assert found.headers == ((b"etag", b'"1"'),)
        return int(found.body)

    def write(self, key: Key = REPORT, labels: Iterable[Label] = LABELS) -> str:
        self._rows.write(key)
        return self.reads.wrote(key.tenant, labels)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
async def processes(rows: Rows, redis: RedisServer) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        found = [Process(rows, redis.url) for _ in range(3)]
        for process in found:
            await process.shared.start()
            stack.push_async_callback(process.shared.stop)
        for process in found:
            await process.shared.ready()
        yield found


@pytest.mark.requirement(134)
async def test_what_one_process_has_read_the_others_find(processes: list[Process], rows: Rows) -> None:
    one, two, three = processes
    assert [await p.read() for p in (one, two, three, one)] == [0, 0, 0, 0]
    assert rows.loads == 1


@pytest.mark.requirement(134)
async def test_the_writer_never_reads_what_it_has_changed(processes: list[Process], rows: Rows) -> None:
    one, two, _ = processes
    for n in range(1, 50):
        await two.read()
        one.write()
        assert await one.read() == n
    written = one.write()
    assert await two.read(seen_after=written) == 50, "and neither does a reader that names the write"


async def test_results_through_a_process_show_in_its_next_read(processes: list[Process], rows: Rows) -> None:
    one, two, _ = processes
    await two.read()
    rows.write(REPORT)
    one.reads.observed([EXECUTION])
    assert await one.read() == 1


async def test_a_message_removes_what_its_receiver_has_shared(processes: list[Process], rows: Rows) -> None:
    one, two, three = processes
    await one.read()
    rows.write(REPORT)
    one.reads._on_shards("edit 3")
    assert await one.read() == 1
    rows.write(REPORT)
    one.reads._on_events(f'[{{"kind":"started","executions":["{EXECUTION}"]}}]')
    assert await one.read() == 2
    assert await three.read() == 2 and await two.read() == 2


@pytest.mark.requirement(134)
async def test_an_entry_counts_its_age_from_the_beginning_of_its_read(processes: list[Process]) -> None:
    one, two, _ = processes
    seen = found = await one.shared.look("k", oldest_s=TTL_S)
    assert found is not None and found.value is None
    for age_us, kept in ((950_000, False), (-50_000, False), (400_000, True)):
        one.shared.keep("k", b"value", ["label"], began=found.at - age_us, oldest_s=TTL_S)
        seen = await two.shared.look("k", oldest_s=TTL_S)
        assert seen is not None and (seen.value is not None) == kept, age_us
    assert seen is not None and 0.4 <= seen.age_s < TTL_S
    began = time.monotonic()

    async def has_expired() -> bool:
        seen = await two.shared.look("k", oldest_s=TTL_S)
        return seen is not None and seen.value is None

    await until_async("the entry expires", has_expired, within_s=10)
    assert time.monotonic() - began < TTL_S, "it was 0.4 s old"


@pytest.mark.requirement(134)
@pytest.mark.parametrize("fault", ["none", "killed", "frozen", "empty"])
async def test_no_reader_sees_what_is_older_than_a_second_nor_the_writer_its_past(
    processes: list[Process], rows: Rows, redis: RedisServer, fault: str
) -> None:
    """Random reads and writes of three processes that hear nothing of one another, while Redis fails."""
    draw = random.Random(fault)
    keys = [Key(1, f"/api/v1/jobs/{n}?") for n in range(5)]
    shares = 0

    async def work(process: Process) -> None:
        nonlocal shares
        own: dict[Key, int] = {}
        while time.monotonic() < end or not harmed.done():
            key = draw.choice(keys)
            labels = (job_label(1, key.target),)
            if draw.random() < 0.1:
                process.write(key, labels)
                own[key] = rows.values[key]
            began, loads = time.monotonic(), rows.loads
            value = await process.read(key, labels)
            assert value >= own.get(key, 0), "a writer sees what it wrote"
            assert value >= rows.oldest_allowed(key, began)
            shares += rows.loads == loads
            await asyncio.sleep(0)

    async def harm() -> None:
        if fault == "killed":
            redis.kill()
        elif fault == "frozen":
            redis.freeze()
            await until("the freeze is noticed", lambda: not any(p.shared.connected for p in processes), within_s=30)
            redis.thaw()
        elif fault == "empty":
            await redis.restart_empty()

    end = time.monotonic() + 2.5
    harmed = asyncio.create_task(harm())
    await asyncio.gather(harmed, *(work(process) for process in processes))
    assert shares > 100


async def test_without_redis_each_process_has_its_own_cache(
    processes: list[Process], rows: Rows, redis: RedisServer
) -> None:
    one, two, _ = processes
    await one.read()
    redis.kill()
    await until("both notice", lambda: not (one.shared.connected or two.shared.connected), within_s=30)
    assert [await p.read(Key(1, "/other")) for p in (one, one, two, two)] == [0, 0, 0, 0]
    assert rows.loads == 3
    await redis.start()
    await until("they are back", lambda: one.shared.connected and two.shared.connected, within_s=30)
    assert [await p.read(Key(1, "/third")) for p in (one, two)] == [0, 0]
    assert rows.loads == 4


async def test_what_changed_while_redis_was_away_is_not_found_after_it(
    processes: list[Process], rows: Rows, redis: RedisServer
) -> None:
    one, two, _ = processes
    await two.read()
    redis.freeze()
    await until("the freeze is noticed", lambda: not (one.shared.connected or two.shared.connected), within_s=30)
    assert one.write()
    redis.thaw()
    await until("they are back", lambda: one.shared.connected and two.shared.connected, within_s=30)
    assert await one.read() == 1
    assert one.shared._distrusted_until > time.monotonic(), "Redis does not know of the change"


async def test_a_value_that_cannot_be_read_is_ignored(processes: list[Process], rows: Rows) -> None:
    one = processes[0]
    found = await one.shared.look(REPORT, oldest_s=TTL_S)
    assert found is not None
    one.shared.keep(REPORT, b"no entry of this program", ["label"], began=found.at, oldest_s=TTL_S)
    assert await one.read() == 0 and rows.loads == 1


async def test_credentials_are_checked_at_the_start(locked_redis: RedisServer) -> None:
    with pytest.raises(Invalid, match=r"--cache redis://127\.0\.0\.1:\d+: "):
        await RedisCache(locked_redis.url.replace("correct", "wrong"), prefix="p").start()
    with pytest.raises(Invalid, match=r"--cache kafka://broker: unknown engine; use redis://HOST"):
        open_cache("kafka://me:secret@broker", prefix="p")
    assert open_cache(None, prefix="p") is None


@pytest.mark.requirement(134)
async def test_two_api_processes_share_entries(postgres: EmbeddedServer, redis: RedisServer, tmp_path: Path) -> None:
    url = await clone(postgres)
    async with Database(url, size=1) as database, database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="test", scopes=("admin",))
    async with (
        api_processes(tmp_path, url, 2, MAINSPRING_CACHE=redis.url) as (one, two),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30) as http,
    ):
        name = "report"
        await http.post(f"{one}/api/v1/jobs", json={"name": name, "task": {"kind": "noop"}})

        async def is_shared() -> bool:
            await http.get(f"{one}/api/v1/jobs/{name}")
            await http.get(f"{two}/api/v1/jobs/{name}")
            lines = (await http.get(f"{two}/metrics")).text.splitlines()
            series = 'mainspring_read_cache_requests_total{kind="job",result="shared"} '
            return any(line.startswith(series) and not line.endswith(" 0.0") for line in lines)

        await until_async("an entry is shared", is_shared, within_s=30)
        for n in range(1, 6):
            await http.get(f"{two}/api/v1/jobs/{name}")
            await http.patch(f"{one}/api/v1/jobs/{name}", json={"priority": n})
            assert (await http.get(f"{one}/api/v1/jobs/{name}")).json()["spec"]["priority"] == n
