"""The batcher: many callers, one round trip, a result for each."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.batch import Batcher


class Flushes:
    """A flush the test lets through when it wants."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.at_once = self.most_at_once = 0
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.begun.set()
        await self.gate.wait()
        self.at_once -= 1
        if -1 in items:
            raise ValueError("one of these is bad")
        return [item * 10 for item in items]


def submit(batcher: Batcher[int, int], *items: int) -> list[asyncio.Task[int]]:
    return [asyncio.create_task(batcher.submit(item)) for item in items]


async def test_a_lone_caller_does_not_wait() -> None:
    flush = Flushes()
    flush.gate.set()
    assert await Batcher(flush).submit(7) == 70
    assert flush.batches == [[7]]


async def test_while_one_batch_is_written_the_next_one_fills_in_order() -> None:
    flush = Flushes()
    batcher = Batcher(flush)
    first = submit(batcher, 0)
    await flush.begun.wait()
    rest = submit(batcher, *range(1, 50))
    await asyncio.sleep(0)
    flush.gate.set()
    assert await asyncio.gather(*first, *rest) == [n * 10 for n in range(50)]
    assert flush.batches == [[0], list(range(1, 50))]


async def test_batches_have_a_size_and_a_number_at_once() -> None:
    flush = Flushes()
    batcher = Batcher(flush, max_items=10, parallel=3)
    tasks = submit(batcher, *range(95))
    await flush.begun.wait()
    flush.gate.set()
    assert await asyncio.gather(*tasks) == [n * 10 for n in range(95)]
    assert max(map(len, flush.batches)) == 10
    assert flush.most_at_once <= 3


async def test_an_error_reaches_only_its_batch() -> None:
    flush = Flushes()
    batcher = Batcher(flush)
    bad = submit(batcher, 1, -1)
    await flush.begun.wait()
    good = submit(batcher, 2, 3)
    await asyncio.sleep(0)
    flush.gate.set()
    found = await asyncio.gather(*bad, return_exceptions=True)
    assert [str(error) for error in found] == ["one of these is bad"] * 2
    assert await asyncio.gather(*good) == [20, 30]
    assert await batcher.submit(4) == 40


async def test_a_caller_that_left_does_not_disturb_the_others() -> None:
    flush = Flushes()
    batcher = Batcher(flush)
    one, two = submit(batcher, 1, 2)
    await flush.begun.wait()
    one.cancel()
    flush.gate.set()
    assert await two == 20
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_a_flush_that_was_ended_ends_its_callers() -> None:
    """As when the program stops: nobody waits for ever."""

    async def ended(_: list[int]) -> list[int]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Batcher(ended).submit(1)


async def test_what_was_pending_when_a_flush_was_ended_is_still_answered() -> None:
    calls = 0
    begun = asyncio.Event()

    async def once(items: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            begun.set()
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        return items

    batcher = Batcher(once)
    first = asyncio.create_task(batcher.submit(1))
    await begun.wait()
    second = asyncio.create_task(batcher.submit(2))
    with pytest.raises(asyncio.CancelledError):
        await first
    third = asyncio.create_task(batcher.submit(3))
    assert [await asyncio.wait_for(waiting, 5) for waiting in (second, third)] == [2, 3]


async def test_gather_delays_a_batch_to_share_a_flush() -> None:
    flushed: list[list[int]] = []

    async def flush(items: list[int]) -> list[int]:
        flushed.append(items)
        return items

    batcher = Batcher(flush, max_items=3, gather_s=0.01)
    assert await asyncio.gather(*[batcher.submit(n) for n in range(2)]) == [0, 1]
    assert flushed == [[0, 1]], "the second came while the first waited"
    await asyncio.gather(*[batcher.submit(n) for n in range(7)])
    assert [len(items) for items in flushed[1:]] == [3, 3, 1], "as many as fit"
