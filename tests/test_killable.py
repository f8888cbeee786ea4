"""Functions in a process that can be killed: limits, failures, and what such a process knows."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from mainspring.domain.errors import Unavailable
from mainspring.killable import MAX_WAITING, Failed, KillableFunction, Killed, Limits

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    return number * 2


def spin() -> None:
    while True:
        pass


def match_for_ages() -> None:
    import re

    re.match(r"(a+)+b", "a" * 60)


def fill_memory() -> int:
    return len(bytearray(3_000_000_000))


def fail() -> None:
    raise ValueError("no")


def environment() -> dict[str, str]:
    return dict(os.environ)


def parent() -> int:
    return os.getppid()


def function(name: str, cpu_s: float = 0.3) -> KillableFunction:
    return KillableFunction(f"tests.test_killable:{name}", Limits(cpu_s, 10.0))


async def test_a_value_is_returned_and_an_error_has_its_text() -> None:
    doubled = function("double")
    assert [await doubled.call(n) for n in (1, 2, 10**30)] == [2, 4, 2 * 10**30]
    doubled.close()
    failing = function("fail")
    with pytest.raises(Failed, match=r"^no$"):
        await failing.call()
    failing.close()


@pytest.mark.parametrize("name", ["spin", "match_for_ages", "fill_memory"])
async def test_a_call_beyond_its_limits_is_killed_and_the_event_loop_goes_on(name: str) -> None:
    costly, turns = function(name), 0
    call = asyncio.ensure_future(costly.call())
    while not call.done():
        await asyncio.sleep(0)
        turns += 1
    with pytest.raises(Killed):
        await call
    assert turns > 20, "the loop had its turns meanwhile"
    with pytest.raises(Killed):
        await costly.call()
    costly.close()


async def test_a_process_that_was_ended_from_outside_is_replaced() -> None:
    asked = function("parent")
    first = await asked.call()
    os.killpg(first, signal.SIGKILL)
    assert await asked.call() != first
    asked.close()


async def test_the_process_has_no_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_TOKEN", "secret")
    asked = function("environment")
    assert "secret" not in str(await asked.call())
    asked.close()


async def test_more_calls_than_may_wait_are_refused() -> None:
    spinning = function("spin", 0.02)
    calls = [asyncio.ensure_future(spinning.call()) for _ in range(MAX_WAITING + 1)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in found].count(Unavailable) == 1
    assert [type(one) for one in found].count(Killed) == MAX_WAITING
    spinning.close()
