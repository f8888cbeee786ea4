"""Loops: a failing step is logged and retried; stop ends every task."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import structlog.testing

from mainspring import service
from mainspring.service import Loops


async def test_a_step_is_repeated_until_the_stop() -> None:
    count, enough = 0, asyncio.Event()

    async def step() -> None:
        nonlocal count
        count += 1
        if count == 3:
            enough.set()
        await asyncio.sleep(0)

    loops = Loops("test")
    loops.forever("count", step)
    await asyncio.wait_for(enough.wait(), 5)
    await loops.stop()
    seen = count
    await asyncio.sleep(0)
    assert count == seen


async def test_an_error_is_logged_and_the_backoff_doubles_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    enough = asyncio.Event()

    async def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 7:
            enough.set()
            await asyncio.Event().wait()

    async def step() -> None:
        raise ValueError("it broke")

    monkeypatch.setattr("mainspring.service.asyncio.sleep", pause)
    loops = Loops("test")
    with structlog.testing.capture_logs() as told:
        loops.forever("break", step, backoff_s=1.0)
        await asyncio.wait_for(enough.wait(), 5)
        await loops.stop()
    assert waits == [1, 2, 4, 8, 16, 16, 16]
    assert told[0]["loop"] == "test.break"
    assert "it broke" in told[0]["error"]


async def test_a_success_resets_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    enough = asyncio.Event()
    script = iter([True, True, False, True])

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    async def step() -> None:
        fails = next(script, None)
        if fails is None:
            enough.set()
            await asyncio.Event().wait()
        if fails:
            raise OSError("away")

    monkeypatch.setattr("mainspring.service.asyncio.sleep", pause)
    loops = Loops("test")
    loops.forever("break", step, backoff_s=1.0)
    await asyncio.wait_for(enough.wait(), 5)
    await loops.stop()
    assert waits == [1, 2, 1]


async def test_stopping_waits_until_all_have_ended() -> None:
    begun, tidied = asyncio.Event(), []

    async def work() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tidied.append(True)

    loops = Loops("test")
    loops.spawn(work(), "work")
    await begun.wait()
    await loops.stop()
    assert tidied == [True]


async def test_stop_repeats_a_cancellation_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CANCEL_AGAIN_S", 0.01)
    waiting = asyncio.Event()

    async def loses_the_first() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            waiting.set()
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    loops = Loops("test")
    task = loops.spawn(loses_the_first(), "loses")
    await waiting.wait()
    await asyncio.wait_for(loops.stop(), 10)
    assert task.cancelled()
