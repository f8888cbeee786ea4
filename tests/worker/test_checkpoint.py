"""Checkpoints: attempts continue where the last one ended."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.embedded.server import EmbeddedServer
from mainspring.store import checkpoints
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, SessionEnded
from tests.conftest import Cluster, clone, started
from tests.support.processes import until
from tests.support.remote_worker import Remote, remote
from tests.support.worker_program import worker, written

pytestmark = pytest.mark.anyio

QUICK = {"max": 3, "base": "10ms", "jitter": "none"}

SHELL = """
if [ -e $MAINSPRING_CHECKPOINT ]; then cat $MAINSPRING_CHECKPOINT; exit 0; fi
echo '{"row": 410}' > $MAINSPRING_CHECKPOINT.new && mv $MAINSPRING_CHECKPOINT.new $MAINSPRING_CHECKPOINT
exit 1
"""

FUNCTIONS = """
import mainspring as ms

@ms.job()
def count(to: int):
    context = ms.context()
    done = context.last_checkpoint or 0
    for row in range(done, to):
        context.checkpoint(row + 1)
        if row in (2, 5):
            raise RuntimeError(f"stumbled at {row}")
    return {"from": done, "attempt": context.attempt}

@ms.job()
def large():
    ms.context().checkpoint("x" * 70_000)
"""

PROGRAM = """
import sys, time
import mainspring as ms
context = ms.context()
print("from", context.last_checkpoint, flush=True)
if context.last_checkpoint is None:
    context.checkpoint({"page": 7})
    open(sys.argv[1], "w").write("saved\\n")
    time.sleep(600)
"""


async def test_a_program_goes_on_where_it_left_off(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "shell", "shell": True, "argv": [SHELL]}
    async with cluster.client() as client, cluster.worker(queues=(queue,)):
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": QUICK})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        logs = await client.logs(done.execution_id)
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert "".join(chunk.text for chunk in logs.chunks) == '{"row":410}'


async def test_a_function_goes_on_where_it_left_off(cluster: Cluster, tmp_path: Path) -> None:
    """Each attempt continues from the last checkpoint, even one saved just before the end."""
    queue = f"q{uuid4().hex}"
    (tmp_path / "counting.py").write_text(FUNCTIONS)
    async with (
        cluster.client() as client,
        cluster.worker(queues=(queue,), modules=(str(tmp_path / "counting.py"),)),
    ):
        task = {"kind": "python", "function": "counting:count", "args": {"to": 8}}
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": QUICK})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        task = {"kind": "python", "function": "counting:large"}
        await client.create_job({"name": f"{queue}x", "task": task, "queue": queue, "retries": {"max": 0}})
        large = await client.wait((await client.trigger(f"{queue}x")).execution_id, timeout_s=30)
    assert (done.state, done.attempt, done.result) == ("succeeded", 3, {"from": 6, "attempt": 3})
    assert large.error is not None and "the limit is 64,000" in large.error


async def test_what_a_killed_worker_had_told_is_where_the_next_one_begins(cluster: Cluster, tmp_path: Path) -> None:
    queue = f"q{uuid4().hex}"
    program, mark = tmp_path / "program.py", tmp_path / "mark"
    program.write_text(PROGRAM)
    task = {"kind": "shell", "argv": [sys.executable, str(program), str(mark)]}
    async with cluster.client() as client:
        await client.create_job({"name": queue, "task": task, "queue": queue})
        run = await client.trigger(queue)
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-q", queue) as first:
            await until("a checkpoint in the file", lambda: written(mark), within_s=20)
            async with cluster.database.connection() as connection:
                look = "SELECT count(*) FROM checkpoints WHERE execution_id = $1"
                while not await connection.fetchval(look, run.execution_id):
                    assert not first.dead()
            first.send(signal.SIGKILL)
            await first.ended()
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-q", queue):
            done = await client.wait(run.execution_id, timeout_s=30)
            logs = await client.logs(run.execution_id)
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert [chunk.text for chunk in logs.chunks if chunk.attempt == 2] == ["from {'page': 7}\n"]


async def test_a_checkpoint_that_is_none_is_told_in_the_output(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    task = {"kind": "shell", "shell": True, "argv": ["echo not json > $MAINSPRING_CHECKPOINT"]}
    async with cluster.client() as client, cluster.worker(queues=(queue,)):
        await client.create_job({"name": queue, "task": task, "queue": queue})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        logs = await client.logs(done.execution_id)
    assert done.state == "succeeded"
    assert "checkpoint not saved" in "".join(chunk.text for chunk in logs.chunks)


async def test_only_who_holds_an_attempt_says_where_it_goes_on(cluster: Cluster) -> None:
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue) as one, remote(cluster, queue="x") as other:
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(queue)
        (given,) = (await one.poll()).executions

        def said(worker: Remote, attempt: int, value: object) -> wire.SaveCheckpoints:
            report = wire.CheckpointReport(execution_id=given.execution_id, attempt=attempt, value=value)
            return wire.SaveCheckpoints(session_id=worker.session_id, checkpoints=[report])

        ask = wire.ReadCheckpoints(session_id=one.session_id, executions=[given.execution_id])
        await one.link.save_checkpoints(said(one, 1, {"a": 1}))
        await one.link.save_checkpoints(said(one, 2, "of an attempt that is not"))
        await other.link.save_checkpoints(said(other, 1, "of another session"))
        assert (await one.link.read_checkpoints(ask)).checkpoints == {given.execution_id: {"a": 1}}
        stranger = wire.ReadCheckpoints(session_id=other.session_id, executions=[given.execution_id])
        assert (await other.link.read_checkpoints(stranger)).checkpoints == {}
        nobody = wire.ReadCheckpoints(session_id=uuid4(), executions=[given.execution_id])
        with pytest.raises(SessionEnded):
            await one.link.read_checkpoints(nobody)
        await one.tell(given)
        await one.link.save_checkpoints(said(one, 1, "too late"))
    async with cluster.database.connection() as connection:
        query = (
            "UPDATE checkpoints SET saved_at = saved_at - interval '2 hours' WHERE execution_id = $1 RETURNING value"
        )
        assert await connection.fetchval(query, given.execution_id) == {"a": 1}
        await checkpoints.forget_checkpoints(connection)
        left = "SELECT count(*) FROM checkpoints WHERE execution_id = $1"
        assert await connection.fetchval(left, given.execution_id) == 0


@pytest.mark.requirement(94)
async def test_an_execution_of_a_week_outlives_every_server(postgres: EmbeddedServer) -> None:
    """All schedulers and api processes are replaced every day; the worker and its attempt continue."""
    url, queue = await clone(postgres), "weeks"
    async with Database(url, size=2) as database:
        clock = VirtualClock(database)
        await clock.install()
        session: tuple[str, UUID] | None = None
        given: wire.Assignment | None = None
        for day in range(7):
            async with started(url) as cluster, cluster.client() as client, at_hand(cluster, queue, session) as worker:
                if given is None:
                    session = cluster.worker_token, worker.session_id
                    await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue, "timeout": "10d"})
                    await client.trigger(queue)
                    (given,) = (await worker.poll()).executions
                for _ in range(29):  # every fifty minutes, under a lease of an hour
                    await clock.advance(minutes=50)
                    beat = await worker.beat(given.execution_id)
                    assert (beat.gone, beat.cancels) == ([], [])
                report = wire.CheckpointReport(execution_id=given.execution_id, attempt=1, value={"day": day})
                saved = wire.SaveCheckpoints(session_id=worker.session_id, checkpoints=[report])
                await worker.link.save_checkpoints(saved)
                seen = await client.execution(given.execution_id)
                assert (seen.state, seen.attempt) == ("running", 1)
        assert given is not None
        async with started(url) as cluster, cluster.client() as client, at_hand(cluster, queue, session) as worker:
            ask = wire.ReadCheckpoints(session_id=worker.session_id, executions=[given.execution_id])
            assert (await worker.link.read_checkpoints(ask)).checkpoints == {given.execution_id: {"day": 6}}
            assert (await worker.tell(given)).stale == []
            done = await client.execution(given.execution_id)
    assert (done.state, done.attempt, done.attempts) == ("succeeded", 1, [])
    assert done.finished_at is not None and done.started_at is not None
    assert done.finished_at - done.started_at > timedelta(days=7)


@asynccontextmanager
async def at_hand(cluster: Cluster, queue: str, session: tuple[str, UUID] | None) -> AsyncIterator[Remote]:
    """The same worker, with its token, with any server; it registers only once."""
    token, session_id = session or (cluster.worker_token, None)
    address = ApiAddress(cluster.url, token)
    link = ApiClient(address)
    async with httpx2.AsyncClient(base_url=cluster.url, headers=address.headers, trust_env=False) as http:
        if session_id is None:
            async with cluster.client() as client:
                await client.set_queue(queue, {"lease_s": 3600})
            register = wire.Register(name="w", host="here", version="1", slots=1, queues=[queue], kinds=["noop"])
            session_id = (await link.register(register)).session_id
        yield Remote(link, http, session_id)
    await link.close()
