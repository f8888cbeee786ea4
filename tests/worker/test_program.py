"""Worker processes: killed, frozen, and cut off from the api."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster, clone, started
from tests.support.processes import alive, free_port, until
from tests.support.worker_program import ENDLESS, living, worker, written

LEASE_S = 20.0


def script(text: str, **spec: Any) -> dict[str, Any]:
    return {"name": f"job-{uuid4()}", "task": {"kind": "shell", "argv": [text], "shell": True}, **spec}


def until_released(folder: Path, release: str, *, by: str = "") -> str:
    """A script that reports its start and continues when a file appears."""
    return f"echo $$ >> {folder}/begun{by}; while [ ! -e {folder}/{release} ]; do sleep 0.02; done; echo done"


@pytest.mark.fault("F3")
@pytest.mark.requirement(39, 89)
async def test_a_killed_workers_children_end_and_its_execution_goes_on_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The guardian kills the remaining processes, also outside their group, and ends the session before its lease."""
    pids, again = tmp_path / "pids", tmp_path / "again"
    text = (
        f"if [ $MAINSPRING_ATTEMPT = 2 ]; then touch {again}; exit 0; fi;"
        f" echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; {ENDLESS}' & {ENDLESS}"
    )
    async with cluster.client() as client:
        job = await client.create_job(script(text))
        async with worker(tmp_path, cluster.url, cluster.worker_token, "--name", "first") as first:
            execution = await client.trigger(job.name)
            await until("the processes", lambda: written(pids, 2), within_s=20)
            guardian = first.guardian
            async with cluster.worker(name="second"):
                loop = asyncio.get_running_loop()
                killed_at = loop.time()
                first.send(signal.SIGKILL)
                done = await client.wait(execution.execution_id, timeout_s=LEASE_S)
                assert loop.time() - killed_at < LEASE_S / 4, "it did not wait for the lease"
            assert (done.state, done.attempt, done.worker) == ("succeeded", 2, "second")
            assert [(a.outcome, a.worker) for a in done.attempts] == [("lost", "first"), ("succeeded", "second")]
            assert again.exists()
            assert living(pids) == [], "the first attempt had ended before the second began"
            await until("the end of the guardian", lambda: not alive(guardian), within_s=10)
        states = {w.name: w.state for w in (await client.workers()).items}
        assert states["first"] == "lost"


@pytest.mark.fault("F3")
@pytest.mark.requirement(38)
async def test_at_most_once_is_lost_with_its_worker(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        spec = script(until_released(tmp_path, "never"), delivery="at_most_once", retries={"max": 0})
        job = await client.create_job(spec)
        async with worker(tmp_path, cluster.url, cluster.worker_token) as program:
            execution = await client.trigger(job.name)
            await until("the start", lambda: written(tmp_path / "begun"), within_s=20)
            program.send(signal.SIGKILL)
            done = await client.wait(execution.execution_id, timeout_s=LEASE_S)
        assert (done.state, done.attempt) == ("lost", 1)
        assert done.reason is not None and "at_most_once" in done.reason, "not merely because no retries are left"
        async with cluster.worker(name="second"):
            other = await client.trigger((await client.create_job(script("echo mine"))).name)
            assert (await client.wait(other.execution_id, timeout_s=20)).worker == "second"
        assert len((tmp_path / "begun").read_text().splitlines()) == 1, "a free worker did not start it again"
        (letter,) = (await client.dead_letters(job=job.name)).items
    assert (letter.dead_letter_id, letter.ended_as) == (execution.execution_id, "lost")


@pytest.mark.requirement(92)
async def test_a_draining_worker_finishes_what_it_has_and_takes_nothing_new(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script(until_released(tmp_path, "go")))
        other = await client.create_job(script("echo mine"))
        async with worker(tmp_path, cluster.url, cluster.worker_token, "--name", "old", "--slots", "4") as program:
            running = await client.trigger(job.name)
            await until("the start", lambda: written(tmp_path / "begun"), within_s=20)
            program.send(signal.SIGTERM)
            await program.says("worker.draining")
            refused = await client.trigger(other.name)
            async with cluster.worker(name="new"):
                done = await client.wait(refused.execution_id, timeout_s=20)
                assert (done.state, done.worker) == ("succeeded", "new")
            left = await client.trigger(other.name)
            (tmp_path / "go").touch()
            finished = await client.wait(running.execution_id, timeout_s=20)
            assert (finished.state, finished.worker, finished.attempt) == ("succeeded", "old", 1)
            assert await program.ended() == 0, program.text()
            found = await client.execution(left.execution_id)
            assert (found.state, found.attempt) == ("queued", 0), "three free slots, and none of them took it"
            await client.cancel(left.execution_id)
        assert {w.name: w.state for w in (await client.workers()).items}["old"] == "offline"


async def test_what_a_draining_worker_can_not_finish_in_time_is_given_back(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script(until_released(tmp_path, "go"), retries={"max": 0}))
        options = ("--name", "hasty", "--drain", "0.2")
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            execution = await client.trigger(job.name)
            await until("the start", lambda: written(tmp_path / "begun"), within_s=20)
            program.send(signal.SIGTERM)
            assert await program.ended() == 0
        found = await client.execution(execution.execution_id)
        assert (found.state, [a.outcome for a in found.attempts]) == ("queued", ["preempted"])
        assert living(tmp_path / "begun") == []
        (tmp_path / "go").touch()
        async with cluster.worker():
            done = await client.wait(execution.execution_id, timeout_s=20)
    assert (done.state, done.attempt) == ("succeeded", 2), "and costs none of its retries"


@pytest.mark.fault("F7")
async def test_work_goes_on_while_the_api_is_away_and_its_results_arrive_later(postgres: Any, tmp_path: Path) -> None:
    url, port = await clone(postgres), free_port()
    async with started(url, port=port) as cluster:
        async with cluster.client() as client:
            jobs = [await client.create_job(script(until_released(tmp_path, "go", by=f"-{n}"))) for n in range(3)]
            program = worker(tmp_path, cluster.url, cluster.worker_token)
            running = await program.__aenter__()
            made = [await client.trigger(job.name) for job in jobs]
            for n in range(3):
                await until("the start", lambda n=n: written(tmp_path / f"begun-{n}"), within_s=20)  # type: ignore[misc]
        address, token = cluster.url, cluster.token
    try:
        begun = [tmp_path / f"begun-{n}" for n in range(3)]
        assert all(living(file) for file in begun), "no api, but the work goes on"
        (tmp_path / "go").touch()
        await until("the end of the work", lambda: not any(map(living, begun)), within_s=20)
        await running.says("results.failed")
        async with started(url, port=port), AsyncClient(address, token) as client:
            for execution in made:
                done = await client.wait(execution.execution_id, timeout_s=30)
                assert (done.state, done.attempt) == ("succeeded", 1), "once, and its result was not forgotten"
                assert "".join(c.text for c in (await client.logs(done.execution_id)).chunks) == "done\n"
            assert len((await client.executions(job=jobs[0].name)).items) == 1
            assert (await client.doctor()).findings == [], "none is final twice"
            later = await client.trigger(jobs[0].name)
            assert (await client.wait(later.execution_id, timeout_s=30)).state == "succeeded"
    finally:
        await program.__aexit__(None, None, None)


async def test_a_worker_with_a_wrong_token_says_so_and_ends(cluster: Cluster, tmp_path: Path) -> None:
    from tests.support.worker_program import Program

    program = Program(tmp_path, cluster.url, "ms_wrong")
    assert await program.ended() != 0
    assert "invalid token" in program.text()
