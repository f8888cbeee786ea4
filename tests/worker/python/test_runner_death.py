"""Runners that die or must end a call, with many calls: each ends once, and those not begun run elsewhere."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mainspring.domain.task import PythonTask
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.executors.python import PythonExecutor
from tests.support.attempts import Registry, attempt
from tests.support.processes import until

pytestmark = pytest.mark.anyio

APP = "tests.worker.app.jobs"


class Calls:
    """Calls of `journal`, and how they ended."""

    def __init__(self, made: PythonExecutor, file: Path) -> None:
        self._made = made
        self._file = file
        self._template = self._work("")
        self.done: dict[str, Done] = {}
        self.begun = self.kills = 0
        self.kill_after = 0  # as soon as so many have ended
        self.ended = asyncio.Event()

    def _work(self, name: str, **more: Any) -> Work:
        return attempt(PythonTask(f"{APP}:journal"), {"file": str(self._file), "name": name, **more})

    def begin(self, name: str, **more: Any) -> Work:
        self.begun += 1
        work = self._work(name, **more)
        work.definition = self._template.definition  # of the same job
        self._made.begin(work, self._finish)
        return work

    def _finish(self, work: Work, done: Done) -> None:
        name = work.params["name"]
        assert name not in self.done, "a call ends once"
        self.done[name] = done
        self.ended.set()
        if len(self.done) == self.kill_after:
            for pid in self._made.processes:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1

    async def until_all(self) -> None:
        async with asyncio.timeout(60):
            while len(self.done) < self.begun:
                self.ended.clear()
                await self.ended.wait()

    def journal(self) -> str:
        return self._file.read_text()

    def check(self, *, deaths: int) -> None:
        """Every call succeeded after it was made once, or was the one that its runner made when it died."""
        journal = Counter(self.journal().splitlines())
        assert set(journal.values()) == {1}, "no call is made twice"
        failed = {name for name, done in self.done.items() if done.outcome != "succeeded"}
        assert len(failed) <= deaths
        for name in self.done.keys() - failed:
            assert journal[f"begins {name}"] == journal[f"ends {name}"] == 1
        for name in failed:
            assert self.done[name].error == "the function's process was ended by SIGKILL"


async def start(slots: int = 300) -> PythonExecutor:
    made = PythonExecutor()
    await made.start(Host(slots, Registry(), (APP,)))
    return made


async def test_of_many_calls_in_a_runner_only_the_one_that_killed_it_fails(tmp_path: Path) -> None:
    made = await start()
    calls = Calls(made, tmp_path / "journal")
    for n in range(300):  # until it is known to be fast
        calls.begin(f"first-{n}")
    await calls.until_all()
    deadly = {f"then-{n}" for n in (0, 31, 32, 150, 299)}
    for n in range(300):
        calls.begin(f"then-{n}", die=f"then-{n}" in deadly)
    await calls.until_all()
    await made.stop()
    calls.check(deaths=len(deadly))
    assert {name for name, done in calls.done.items() if done.outcome == "failed"} == deadly


@pytest.mark.parametrize("seed", range(4))
async def test_runners_killed_at_random_points(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    made = await start()
    calls = Calls(made, tmp_path / "journal")
    for round_number in range(15):
        calls.kill_after = len(calls.done) + chance.randrange(1, 150)
        for n in range(200):
            calls.begin(f"{round_number}-{n}")
        await calls.until_all()
    await made.stop()
    assert calls.kills >= 15
    calls.check(deaths=calls.kills)


async def test_of_many_calls_in_a_runner_only_those_cancelled_end(tmp_path: Path) -> None:
    made = await start()
    calls, never = Calls(made, tmp_path / "journal"), str(tmp_path / "never")
    for n in range(300):  # until it is known to be fast
        calls.begin(f"first-{n}")
    await calls.until_all()
    works = [calls.begin(f"then-{n}", wait_for=never if n == 40 else "") for n in range(200)]
    await until("the call that hangs", lambda: "begins then-40\n" in calls.journal(), within_s=60)
    behind = [work for work in works[41:] if work.params["name"] not in calls.done][-2:]
    for work in (works[40], *behind):
        work.request_stop("cancelled")
    await calls.until_all()
    await made.stop()
    cancelled = {name for name, done in calls.done.items() if done.outcome == "cancelled"}
    assert cancelled == {work.params["name"] for work in (works[40], *behind)}
    assert Counter(done.outcome for done in calls.done.values()) == {
        "succeeded": 500 - len(cancelled),
        "cancelled": len(cancelled),
    }
    assert set(Counter(calls.journal().splitlines()).values()) == {1}, "no call is made twice"
