"""The cache of status reads: what it keeps, shares and removes. Steps are ordered by events, never by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID, uuid4

import pytest

from mainspring import ports
from mainspring.api import read_cache
from mainspring.api.read_cache import (
    MOST_ENTRY_BYTES,
    MOST_KEY,
    MOST_NAMES,
    TTL_S,
    Encoded,
    Key,
    Label,
    Load,
    ReadCache,
    execution_label,
    job_label,
    lists_label,
    shard_label,
)
from mainspring.codec import encode
from mainspring.domain.errors import NotFound
from mainspring.domain.events import Event
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio

REPORT = Key(1, "/api/v1/jobs/report?")
LABELS = (job_label(1, "report"),)
ELSEWHERE = "0123456789abcdef-7"


class Source:
    """A value in a database: loads read it when they begin, and end when the test says so."""

    def __init__(self, value: str = "old", labels: Iterable[Label] = LABELS) -> None:
        self.value = value
        self.labels = labels
        self.loads = 0
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def until_begun(self) -> None:
        await asyncio.wait_for(self.begun.wait(), 10)

    async def load(self) -> tuple[Encoded, Iterable[Label]]:
        self.loads += 1
        read = self.value
        self.begun.set()
        await self.go_on.wait()
        return Encoded(read.encode()), self.labels


async def read(cache: ReadCache, load: Load, key: Key = REPORT, seen_after: str | None = None) -> str:
    return (await cache.get(key, load, seen_after=seen_after, kind="job")).body.decode()


async def test_a_response_is_kept_for_less_than_a_second() -> None:
    clock, source = ManualClock(), Source()
    cache = ReadCache(clock=clock)
    assert await read(cache, source.load) == "old"
    source.value = "new"
    clock.at += TTL_S - 0.01
    assert (await read(cache, source.load), source.loads) == ("old", 1)
    clock.at += 0.02
    assert (await read(cache, source.load), source.loads) == ("new", 2)
    assert TTL_S < 1


async def test_the_age_counts_from_the_beginning_of_the_read() -> None:
    clock, source = ManualClock(), Source()
    cache = ReadCache(clock=clock)
    source.go_on.clear()
    slow = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    clock.at += TTL_S / 2
    source.go_on.set()
    await slow
    clock.at += TTL_S / 2
    await read(cache, source.load)
    assert source.loads == 2


async def test_a_read_that_began_long_ago_is_neither_joined_nor_kept() -> None:
    clock, early, late = ManualClock(), Source("old"), Source("new")
    cache = ReadCache(clock=clock)
    early.go_on.clear()
    slow = asyncio.create_task(read(cache, early.load))
    await early.until_begun()
    clock.at += TTL_S
    assert await read(cache, late.load) == "new"
    early.go_on.set()
    assert await slow == "old"
    assert (await read(cache, late.load), late.loads) == ("new", 1), "it replaces nothing that was read later"


async def test_no_tenant_reads_the_entry_of_another() -> None:
    cache, ours, theirs = ReadCache(), Source("ours"), Source("theirs", [job_label(2, "report")])
    assert await read(cache, ours.load) == "ours"
    assert await read(cache, theirs.load, Key(2, REPORT.target)) == "theirs"
    cache.wrote(2, None)
    cache.wrote(2, [job_label(2, "report")])
    ours.value = "changed"
    assert await read(cache, ours.load) == "ours", "a write of another tenant removes nothing"


@pytest.mark.parametrize("labels", [None, [job_label(1, "report")], [job_label(1, "REPORT")]])
async def test_a_write_removes_what_it_changed(labels: list[Label] | None) -> None:
    cache, source = ReadCache(), Source()
    await read(cache, source.load)
    source.value = "new"
    cache.wrote(1, labels)
    assert await read(cache, source.load) == "new"


async def test_a_write_to_one_job_leaves_the_others() -> None:
    cache, source, page = ReadCache(), Source(), Source(labels=[lists_label(1)])
    await read(cache, source.load)
    await read(cache, page.load, Key(1, "/api/v1/jobs?"))
    cache.wrote(1, [job_label(1, "other")])
    await read(cache, source.load)
    await read(cache, page.load, Key(1, "/api/v1/jobs?"))
    assert (source.loads, page.loads) == (1, 2), "only lists can show any job"


async def test_concurrent_requests_share_one_read() -> None:
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    requests = [asyncio.create_task(read(cache, source.load)) for _ in range(50)]
    await source.until_begun()
    source.go_on.set()
    assert await asyncio.gather(*requests) == ["old"] * 50
    assert source.loads == 1


@pytest.mark.parametrize("labels", [None, [job_label(1, "report")], [job_label(1, "unrelated")]])
async def test_a_request_after_a_write_does_not_join_a_read_that_began_before_it(labels: list[Label] | None) -> None:
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    early = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    source.value = "new"
    cache.wrote(1, labels)
    source.begun.clear()
    late = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    source.go_on.set()
    assert (await early, await late) == ("old", "new")
    assert (await read(cache, source.load), source.loads) == ("new", 2), "the later read is kept"


async def test_a_read_that_may_have_missed_a_write_is_not_kept() -> None:
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    early = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    source.value = "new"
    cache.wrote(1, LABELS)
    source.go_on.set()
    assert await early == "old"
    assert await read(cache, source.load) == "new"


async def test_a_client_that_disconnects_does_not_end_the_read_of_others() -> None:
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    first = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    second = asyncio.create_task(read(cache, source.load))
    await asyncio.sleep(0)
    first.cancel()
    source.go_on.set()
    assert await second == "old"
    assert source.loads == 1


async def test_errors_are_not_kept() -> None:
    cache, source = ReadCache(), Source()

    async def missing() -> tuple[Encoded, Iterable[Label]]:
        raise NotFound("there is no job 'report'")

    with pytest.raises(NotFound):
        await read(cache, missing)
    assert await read(cache, source.load) == "old"


async def test_a_write_through_another_process_is_seen_by_whoever_names_it() -> None:
    cache, source = ReadCache(), Source()
    await read(cache, source.load)
    source.value = "new"
    assert await read(cache, source.load) == "old", "others may see it a second later"
    assert await read(cache, source.load, seen_after=ELSEWHERE) == "new"
    assert (await read(cache, source.load, seen_after=ELSEWHERE), source.loads) == ("new", 2), (
        "named again, it is known"
    )


async def test_a_request_that_names_a_write_does_not_join_an_earlier_read() -> None:
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    early = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    source.value = "new"
    source.begun.clear()
    late = asyncio.create_task(read(cache, source.load, seen_after=ELSEWHERE))
    await source.until_begun()
    source.go_on.set()
    assert (await early, await late) == ("old", "new")


async def test_own_writes_need_no_second_read() -> None:
    cache, source = ReadCache(), Source()
    written = cache.wrote(1, LABELS)
    await read(cache, source.load)
    assert (await read(cache, source.load, seen_after=f"{written}, {written}"), source.loads) == ("old", 1)
    source.value = "new"
    assert await read(cache, source.load, seen_after=f"{written},{ELSEWHERE}") == "new", "one of them is enough"


@pytest.mark.parametrize("named", ["x", ",", "0123456789abcdef-", "a" * 9999])
async def test_a_header_that_cannot_be_understood_is_served_without_the_cache(named: str) -> None:
    cache, source = ReadCache(), Source()
    await read(cache, source.load)
    source.value = "new"
    assert await read(cache, source.load, seen_after=named) == "new"


async def test_a_request_can_name_a_few_writes() -> None:
    cache, source = ReadCache(), Source()
    written = cache.wrote(1, LABELS)
    await read(cache, source.load)
    source.value = "new"
    assert await read(cache, source.load, seen_after=",".join([written] * MOST_NAMES)) == "old"
    assert await read(cache, source.load, seen_after=",".join([written] * (MOST_NAMES + 1))) == "new"


class Channels:
    """A bus whose messages the test delivers."""

    def __init__(self) -> None:
        self.hear: dict[str, Callable[[str], None]] = {}
        self.gaps: list[Callable[[], None]] = []

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        self.hear[channel] = hear
        self.gaps.append(on_gap)

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        self.hear[channel](payload)


async def test_messages_on_the_bus_remove_what_they_name() -> None:
    bus, execution_id = Channels(), uuid4()
    cache = ReadCache(bus)
    source = Source(labels=[execution_label(execution_id), shard_label(5)])

    async def heard(channel: str, payload: str) -> bool:
        await read(cache, source.load)
        before = source.loads
        bus.publish(channel, payload)
        await read(cache, source.load)
        return source.loads > before

    assert await heard(ports.EVENTS, encode([Event("finished", [execution_id])]).decode())
    assert not await heard(ports.EVENTS, encode([Event("finished", [uuid4()], more=3)]).decode())
    assert await heard(ports.SHARDS, "edit 5")
    assert not await heard(ports.SHARDS, "edit 6")
    assert not await heard(ports.SHARDS, "wait 1700000000000")
    before = source.loads
    for gap in bus.gaps:
        gap()
    await read(cache, source.load)
    assert source.loads == before + 1, "messages may have been lost"


async def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "MOST_ENTRIES", 100)
    monkeypatch.setattr(read_cache, "MOST_BYTES", 100_000)
    cache = ReadCache(clock=ManualClock())
    for length, fewest in ((0, 100), (5000, 10)):
        for n in range(500):
            source = Source("x" * length, [job_label(1, str(n)), UUID(int=n)])
            await read(cache, source.load, Key(n % 3, f"/{n}"))
            entries, size = cache.size
            assert entries <= 100 and size <= 100_000
        assert cache.size[0] >= fewest
    assert len(cache._by_label) <= 100 * 5, "removed entries leave nothing behind"
    large = Source("x" * MOST_ENTRY_BYTES)
    await read(cache, large.load)
    await read(cache, large.load)
    long = Source()
    for _ in range(2):
        await read(cache, long.load, Key(1, "/" + "a" * MOST_KEY))
    assert (large.loads, long.loads) == (2, 2)
    cache.clear()
    assert cache.size == (0, 0) and not cache._by_label


async def test_expired_entries_go_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    cache = ReadCache(clock=clock)
    for n in range(50):
        await read(cache, Source().load, Key(1, f"/{n}"))
    assert cache.in_use
    clock.at += TTL_S
    assert not cache.in_use
    await read(cache, Source().load)
    assert cache.size[0] == 1


async def test_what_is_remembered_of_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_cache, "MOST_WRITES_SEEN", 50)
    monkeypatch.setattr(read_cache, "MOST_CHANGED", 50)
    cache, source = ReadCache(), Source()
    source.go_on.clear()
    early = asyncio.create_task(read(cache, source.load))
    await source.until_begun()
    source.value = "new"
    for n in range(200):
        cache.wrote(n, [job_label(n, "report")])
    for n in range(200):
        await cache.get(Key(9, "/"), Source().load, seen_after=f"0123456789abcdef-{n}", kind="job")
    assert max(len(cache._written), len(cache._seen), len(cache._changed)) <= 52
    source.go_on.set()
    assert await early == "old"
    assert await read(cache, source.load) == "new"
