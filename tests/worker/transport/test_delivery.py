"""Delivery of results and output to a real api, in an order that loses none."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec
import pytest

from mainspring import wire
from mainspring.worker.executors import Work
from mainspring.worker.transport import delivery
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, ApiUnavailable
from mainspring.worker.transport.delivery import ResultDelivery
from tests.conftest import Cluster
from tests.support.attempts import Registry
from tests.support.remote_worker import remote


class Held(ApiClient):
    """A client that holds back output until the test releases it, and may lose the first answers."""

    def __init__(self, address: ApiAddress, *, lose: int = 0) -> None:
        super().__init__(address)
        self.on_its_way, self.go = asyncio.Event(), asyncio.Event()
        self.sent: list[str] = []
        self._lose = lose

    async def results(self, results: wire.Results) -> wire.Settled:
        self.sent.append("result" if results.results else "output")
        if not results.results:
            self.on_its_way.set()
            await self.go.wait()
        settled = await super().results(results)
        if self._lose:
            self._lose -= 1
            raise ApiUnavailable("the answer was lost")
        return settled


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "OUTPUT_S", 0.0)
    monkeypatch.setattr(delivery, "RETRY_S", 0.0)


def ended(work: Work) -> wire.Result:
    given = work.assignment
    return wire.Result(execution_id=given.execution_id, attempt=given.attempt, outcome="succeeded", duration_ms=1)


@pytest.mark.parametrize("lose", [0, 3], ids=["every answer arrives", "answers are lost"])
async def test_output_on_its_way_arrives_before_the_result(cluster: Cluster, lose: int) -> None:
    """The api takes no output of an ended attempt, so the result must wait for it."""
    queue = f"q{uuid4().hex}"
    link = Held(ApiAddress(cluster.url, cluster.worker_token), lose=lose)
    delivered: list[wire.Result] = []
    async with cluster.client() as client, remote(cluster, queue=queue) as session:
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(job.name)
        polled = await session.poll()
        (given,) = polled.executions
        definition = polled.definitions[given.definition]
        work = Work(given, definition, session_id=session.session_id, cleanup=Registry())
        sending = ResultDelivery(link, session.session_id, delivered=delivered.extend)
        sending.start()
        sending.begin(work)
        work.output.write("stdout", b"first ")
        await asyncio.wait_for(link.on_its_way.wait(), 10)
        work.output.write("stdout", b"last")
        sending.end(work, ended(work))
        for _ in range(100):
            await asyncio.sleep(0)
        assert link.sent == ["output"], "the result waits"
        link.go.set()
        assert await sending.flushed(10)
        await sending.stop()
        assert [result.execution_id for result in delivered] == [given.execution_id]
        assert (await client.execution(given.execution_id)).state == "succeeded"
        chunks = (await client.logs(given.execution_id)).chunks
        assert "".join(chunk.text for chunk in chunks) == "first last"
    await link.close()


async def test_one_refused_result_takes_no_others_along(cluster: Cluster) -> None:
    """A result that the api refuses becomes a failure with the reason, not a lost attempt."""
    queue = f"q{uuid4().hex}"
    link = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
    async with cluster.client() as client, remote(cluster, queue=queue) as session:
        retries = {"max": 0}
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue, "retries": retries})
        sending = ResultDelivery(link, session.session_id, delivered=lambda _: None)
        ids = []
        for result in ("fine", "holds a \0"):
            await client.trigger(job.name)
            polled = await session.poll()
            (given,) = polled.executions
            definition = polled.definitions[given.definition]
            work = Work(given, definition, session_id=session.session_id, cleanup=Registry())
            sending.end(work, msgspec.structs.replace(ended(work), result=result))
            ids.append(given.execution_id)
        sending.start()
        assert await sending.flushed(10)
        await sending.stop()
        good, bad = [await client.execution(execution_id) for execution_id in ids]
    await link.close()
    assert (good.state, bad.state) == ("succeeded", "failed")
    assert bad.error is not None and bad.error.startswith(delivery.REFUSED)


class Paired(ApiClient):
    """A client whose first two reports wait for each other; the answer to the first is lost."""

    def __init__(self, address: ApiAddress) -> None:
        super().__init__(address)
        self.sizes: list[int] = []
        self._both = asyncio.Event()

    async def results(self, results: wire.Results) -> wire.Settled:
        self.sizes.append(len(results.results))
        is_first = len(self.sizes) == 1
        if len(self.sizes) == 2:
            self._both.set()
        await self._both.wait()
        settled = await super().results(results)
        if is_first:
            raise ApiUnavailable("the answer was lost")
        return settled


async def test_full_batches_are_sent_two_at_a_time(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCH_RESULTS", 3)
    queue = f"q{uuid4().hex}"
    link = Paired(ApiAddress(cluster.url, cluster.worker_token))
    delivered: list[wire.Result] = []
    async with cluster.client() as client, remote(cluster, queue=queue) as session:
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        sending = ResultDelivery(link, session.session_id, delivered=delivered.extend)
        ids = []
        for _ in range(7):
            await client.trigger(job.name)
            polled = await session.poll()
            (given,) = polled.executions
            definition = polled.definitions[given.definition]
            work = Work(given, definition, session_id=session.session_id, cleanup=Registry())
            sending.end(work, ended(work))
            ids.append(given.execution_id)
        sending.start()
        assert await sending.flushed(30)
        await sending.stop()
        states = {(await client.execution(execution_id)).state for execution_id in ids}
    await link.close()
    assert link.sizes == [3, 3, 3, 1], "two together, the first of them again, then the rest"
    assert [result.execution_id for result in delivered] == ids
    assert states == {"succeeded"}
