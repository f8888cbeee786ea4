"""Stopped workers and lost machines. Figures are printed as one line of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.client.problems import WaitTimedOut
from tests.conftest import clone, started
from tests.support.figures import record
from tests.support.fleet import ROUNDS
from tests.support.processes import alive, until
from tests.support.worker_program import ENDLESS, living, worker, written

pytestmark = pytest.mark.fault

LEASE_S = 20.0 if ROUNDS > 1 else 5.0
both_ways = pytest.mark.parametrize("way", [(), ("--poll",)], ids=["stream", "poll"])


def tell_tale(folder: Path) -> dict[str, Any]:
    """The first attempt never ends; the second one reports which processes of the first it still sees."""
    text = (
        f"if [ $MAINSPRING_ATTEMPT = 1 ]; then echo $$ >> {folder}/pids; {ENDLESS}; fi;"
        f" for pid in $(cat {folder}/pids); do"
        # A dead process stays in the process list until its stopped parent has reaped it.
        f" grep -q 'State:.[^ZX]' /proc/$pid/status && echo $pid >> {folder}/seen; done; exit 0"
    )
    return {"name": "tell-tale", "task": {"kind": "shell", "argv": [text], "shell": True}}


async def final(client: AsyncClient, execution_id: UUID) -> wire.Execution:
    try:
        return await client.wait(execution_id, timeout_s=LEASE_S * 2 + 10)
    except WaitTimedOut:
        found = await client.execution(execution_id)
        pytest.fail(f"{found.state}, due {found.due_at}; attempts: {found.attempts}")


@pytest.mark.fault("F4")
@both_ways
async def test_a_worker_that_stands_still_for_three_leases(postgres: Any, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Its guardian ends the child before the lease expires and another attempt starts; its later results are stale."""
    async with started(await clone(postgres), session_lease_s=LEASE_S) as cluster, cluster.client() as client:
        job = await client.create_job(tell_tale(tmp_path))
        async with worker(tmp_path, cluster.url, cluster.worker_token, "--name", "first", *way) as first:
            execution = await client.trigger(job.name)
            await until("the first attempt", lambda: written(tmp_path / "pids"), within_s=30)
            loop = asyncio.get_running_loop()
            stopped = loop.time()
            first.send(signal.SIGSTOP)
            async with cluster.worker(name="second"):
                done = await final(client, execution.execution_id)
                took_s = loop.time() - stopped
                assert (done.state, done.attempt, done.worker) == ("succeeded", 2, "second")
                assert not (tmp_path / "seen").exists(), "the first attempt's child was alive beside the second"
                await until("three leases", lambda: loop.time() - stopped > 3 * LEASE_S, within_s=4 * LEASE_S)
                first.send(signal.SIGCONT)
                await until(
                    "a new session", lambda: first.text().count("session.started") == 2 or first.dead(), within_s=30
                )
                assert not first.dead(), first.text()
            # A late report of the first attempt has changed nothing.
            await until("its leftovers", lambda: living(tmp_path / "pids") == [], within_s=10)
            again = await client.execution(execution.execution_id)
            assert (again.state, again.attempt, again.finished_at) == ("succeeded", 2, done.finished_at)
            assert [a.outcome for a in again.attempts] == ["lost", "succeeded"]
            assert (await client.doctor()).findings == []
            fresh = await client.trigger((await client.create_job({**hello(), "name": "after"})).name)
            ended = await client.wait(fresh.execution_id, timeout_s=30)
            assert (ended.state, ended.worker) == ("succeeded", "first"), "it works again, with a session of its own"
    record("SIGSTOP of a worker", lease_s=LEASE_S, done_elsewhere_s=round(took_s, 2))


@pytest.mark.fault("F4")
@both_ways
async def test_a_machine_that_is_gone(postgres: Any, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Worker, guardian and child end at once without a report, so only the lease shows it."""
    async with started(await clone(postgres), session_lease_s=LEASE_S) as cluster, cluster.client() as client:
        job = await client.create_job(tell_tale(tmp_path))
        async with worker(tmp_path, cluster.url, cluster.worker_token, "--name", "first", *way) as first:
            execution = await client.trigger(job.name)
            await until("the first attempt", lambda: written(tmp_path / "pids"), within_s=30)
            (child,) = living(tmp_path / "pids")
            guardian = first.guardian
            async with cluster.worker(name="second"):
                loop = asyncio.get_running_loop()
                lost = loop.time()
                end_together(guardian, first.process.pid, child)
                done = await final(client, execution.execution_id)
                took_s = loop.time() - lost
            await until("the end of all", lambda: not alive(guardian), within_s=10)
            assert (done.state, done.attempt, done.worker) == ("succeeded", 2, "second")
            assert took_s < LEASE_S * 1.25 + 5, f"{took_s:.1f} s"
        states = {w.name: w.state for w in (await client.workers()).items}
        assert states["first"] == "lost"
    record("a machine is gone", lease_s=LEASE_S, done_elsewhere_s=round(took_s, 2))


@pytest.mark.fault("F3")
@both_ways
async def test_slots_of_a_key_come_back_after_kill_9(postgres: Any, tmp_path: Path, way: tuple[str, ...]) -> None:
    """The holders of the slots are gone; the next ones start, never more at once than the key allows."""
    async with started(await clone(postgres), session_lease_s=LEASE_S) as cluster, cluster.client() as client:
        text = f"echo $$ >> {tmp_path}/pids; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        task = {"kind": "shell", "argv": [text], "shell": True}
        spec = {"name": "keyed", "task": task, "concurrency": {"key": "k", "limit": 2}, "retries": {"base": "1s"}}
        await client.create_job(spec)
        async with worker(tmp_path, cluster.url, cluster.worker_token, "--slots", "8", *way) as first:
            made = [(await client.trigger("keyed")).execution_id for _ in range(4)]
            await until("two of four", lambda: written(tmp_path / "pids", 2), within_s=30)
            first.send(signal.SIGKILL)
        async with cluster.worker(name="second"):
            await until("two again", lambda: written(tmp_path / "pids", 4), within_s=LEASE_S * 2 + 30)
            states = [(await client.execution(one)).state for one in made]
            assert states.count("running") == 2, states
            (tmp_path / "go").touch()
            for one in made:
                assert (await client.wait(one, timeout_s=60)).state == "succeeded"


def hello() -> dict[str, Any]:
    return {"task": {"kind": "shell", "argv": ["true"]}}


def end_together(*pids: int) -> None:
    """None of them sees the others die."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # a child goes with its worker
                os.kill(pid, number)
