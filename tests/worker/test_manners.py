"""Worker behaviour: registration, heartbeats, and recovery from its own errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring import wire
from mainspring.dispatch import heartbeat
from mainspring.store import sessions
from mainspring.worker import service
from mainspring.worker.session import Session
from mainspring.worker.transport.api_client import ApiClient, PollAnswer
from tests.conftest import Cluster
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


async def state_of(cluster: Cluster, name: str) -> str:
    async with cluster.client() as client:
        (found,) = [w for w in (await client.workers()).items if w.name == name]
    return found.state


@pytest.mark.requirement(88)
async def test_every_state_of_a_worker_is_shown(cluster: Cluster) -> None:
    name = f"w{uuid4().hex}"
    async with remote(cluster, name=name, queue=name) as worker, cluster.client() as client:
        assert await state_of(cluster, name) == "idle"
        await client.create_job({"name": name, "task": {"kind": "noop"}, "queue": name})
        await client.trigger(name)
        (given,) = (await worker.poll()).executions
        await worker.beat(given.execution_id)
        assert await state_of(cluster, name) == "busy"
        await worker.beat(given.execution_id, draining=True)
        assert await state_of(cluster, name) == "draining"
        async with cluster.database.connection() as connection:
            await connection.execute(
                "UPDATE sessions SET seen_at = seen_at - interval '15 s',"
                " lease_expires_at = lease_expires_at - interval '15 s' WHERE session_id = $1",
                worker.session_id,
            )
        assert await state_of(cluster, name) == "suspect"
        await worker.goodbye(lost=True)
        assert await state_of(cluster, name) == "lost"
    other = f"w{uuid4().hex}"
    async with remote(cluster, name=other, queue=other):
        pass
    assert await state_of(cluster, other) == "offline"


@pytest.mark.parametrize(("late_s", "state"), [(10.0, "idle"), (14.0, "idle"), (15.1, "suspect"), (19.0, "suspect")])
async def test_a_heartbeat_of_an_idle_worker_may_be_late(cluster: Cluster, late_s: float, state: str) -> None:
    """Its lease lasts 20 s and it sends one every 10 s: a busy machine does not make it suspect."""
    name = f"w{uuid4().hex}"
    async with remote(cluster, name=name, queue=name) as worker:
        beat = await worker.beat()
        assert beat.lease_s == 20
        async with cluster.database.connection() as connection:
            await connection.execute(
                "UPDATE sessions SET seen_at = db_now() - make_interval(secs => $2),"
                " lease_expires_at = db_now() + make_interval(secs => 20 - $2) WHERE session_id = $1",
                worker.session_id,
                late_s,
            )
            row = await connection.fetchrow(
                "SELECT *, seen_at + make_interval(secs => $2) AS now FROM sessions WHERE session_id = $1",
                worker.session_id,
                late_s,
            )
        assert sessions.session_state(row) == state


class Clumsy(ApiClient):
    """A client that fails a few times."""

    stumbles = 3
    stumbled: asyncio.Event

    async def poll(self, poll: wire.Poll) -> PollAnswer:
        if type(self).stumbles:
            type(self).stumbles -= 1
            self.stumbled.set()
            raise RuntimeError("an error of the worker's own")
        return await super().poll(poll)


@pytest.mark.requirement(95)
async def test_an_error_of_its_own_does_not_end_a_workers_loop_and_it_is_asked_what_it_runs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It backs off and continues in the same session. Heartbeats name the executions that it does not hold."""
    Clumsy.stumbled = asyncio.Event()
    monkeypatch.setattr(service, "ApiClient", Clumsy)
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, cluster.worker(queues=(queue,), name=queue, streams=False):
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        run = await client.trigger(queue)
        await asyncio.wait_for(Clumsy.stumbled.wait(), 10)
        done = await client.wait(run.execution_id, timeout_s=30)
        assert (done.state, done.attempt) == ("succeeded", 1)
        assert len([w for w in (await client.workers()).items if w.name == queue]) == 1, "one session all along"
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await client.trigger(queue)
        (given,) = (await worker.poll()).executions
        stranger = uuid4()
        beat = await worker.beat(given.execution_id, stranger)
        assert beat.gone == [stranger]
        await worker.tell(given)
        assert (await worker.beat(given.execution_id)).gone == [given.execution_id]


async def test_an_attempt_that_is_not_its_own_any_more_is_let_go(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker ends an attempt that the database says it does not hold, and its result is ignored."""
    asked = asyncio.Event()
    real = heartbeat.compare

    def compare(beat: sessions.Heartbeat, *args: Any) -> heartbeat.Renewed:
        if beat.running:
            asked.set()
        return replace(real(beat, *args), gone=list(beat.running))

    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, cluster.worker(queues=(queue,), name=queue) as worker:
        task = {"kind": "shell", "argv": ["sleep", "600"]}
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": {"max": 0}})
        run = await client.trigger(queue)
        monkeypatch.setattr(heartbeat, "compare", compare)
        await asyncio.wait_for(asked.wait(), 30)
        done = await client.wait(run.execution_id, timeout_s=30)
        assert (done.state, worker.busy) == ("lost", 0)


async def test_an_idle_worker_leaves_out_every_other_heartbeat(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle workers send half as many heartbeats; busy ones send all."""
    turns: list[tuple[bool, bool]] = []  # whether it was idle, and skipped the heartbeat
    heard = asyncio.Event()
    real, make = Session._skips, Session.__init__

    def quick(self: Session, address: Any, registered: wire.Registered, **given: Any) -> None:
        make(self, address, msgspec.structs.replace(registered, heartbeat_s=0.3), **given)

    def rests(self: Session) -> bool:
        idle, rested = not self._slots.held(), real(self)
        turns.append((idle, rested))
        self._loop.call_soon_threadsafe(heard.set)
        return rested

    async def until(enough: Callable[[], bool]) -> None:
        while not enough():
            heard.clear()
            await asyncio.wait_for(heard.wait(), 30)

    monkeypatch.setattr(Session, "_skips", rests)
    monkeypatch.setattr(Session, "__init__", quick)
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, cluster.worker(queues=(queue,), name=queue):
        await until(lambda: len(turns) >= 4)
        assert turns[:4] == [(True, True), (True, False)] * 2
        await client.create_job({"name": queue, "task": {"kind": "shell", "argv": ["sleep", "600"]}, "queue": queue})
        run = await client.trigger(queue)
        await until(lambda: turns[-2:] == [(False, False)] * 2)
        await client.cancel(run.execution_id)


async def test_what_a_worker_can_not_read_fails_with_the_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An execution of a kind that only a newer server knows fails with the reason; nothing else is affected."""

    class Old(ApiClient):
        async def _post(self, path: str, body: Any, answer: Any, *, repeatable: bool = False) -> Any:
            found = await super()._post(path, body, answer)
            if path.endswith("/poll"):
                strange = msgspec.Raw(b'{"name": "x", "task": {"kind": "teleport"}}')
                found = msgspec.structs.replace(found, definitions=dict.fromkeys(found.definitions, strange))
            return found

    monkeypatch.setattr(service, "ApiClient", Old)
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, cluster.worker(queues=(queue,), streams=False):
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 0}})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
    assert done.state == "failed"
    assert done.error is not None and "can't read the job" in done.error and "teleport" in done.error


@pytest.mark.parametrize("retry", [True, False])
async def test_a_failure_that_another_try_would_not_change_is_final(cluster: Cluster, retry: bool) -> None:
    """A refused address is a configuration error; an unknown host may exist later."""
    queue = f"q{uuid4().hex}"
    url = "http://no-such-host.invalid/" if retry else "http://127.0.0.1:1/"
    async with cluster.client() as client, cluster.worker(queues=(queue,)):
        task = {"kind": "http", "url": url}
        retries = {"max": 1, "base": "10ms", "jitter": "none"}
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": retries})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
    assert (done.state, done.attempt) == ("failed", 2 if retry else 1)
    assert done.error
