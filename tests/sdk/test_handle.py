"""Handles with a real server and a worker that loads the application: results, failures, maps; blocking and async."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import mainspring as ms
from mainspring import wire
from mainspring.domain.errors import Invalid
from tests.conftest import Cluster
from tests.sdk import app

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("at_home")]

WITHIN_S = 60.0


@pytest.fixture(scope="module")
async def worker(cluster: Cluster) -> AsyncIterator[None]:
    async with cluster.worker(modules=(app.__name__,), name="app"):
        yield


@pytest.mark.usefixtures("worker")
@pytest.mark.requirement(49)
async def test_a_result_is_what_the_function_returned() -> None:
    items = [app.Item("tea", 300), app.Item("cup", 900)]
    handle = await asyncio.to_thread(app.add.submit, items=items, tax=10)
    assert (handle.job, handle.state, handle.params["tax"]) == ("add", "queued", 10)
    assert await asyncio.to_thread(handle.result, WITHIN_S) == app.Total(1210)
    again = await app.add.submit_async(items=items)
    assert await again.result_async(WITHIN_S) == app.Total(1200)
    assert (await again.fetch_async()).state == (await asyncio.to_thread(again.fetch)).state == "succeeded"


@pytest.mark.usefixtures("worker")
async def test_a_class_is_called() -> None:
    double: Any = app.Double  # type checkers do not follow decorators of classes
    assert await (await double.submit_async(number=21)).result_async(WITHIN_S) == 42


@pytest.mark.usefixtures("worker")
async def test_a_failure_is_raised_with_its_error() -> None:
    handle = await app.fail.submit_async(message="no stock")
    with pytest.raises(ms.ExecutionFailed, match=r"of fail ended as failed: ValueError: no stock") as failed:
        await handle.result_async(WITHIN_S)
    assert failed.value.execution.state == "failed" and failed.value.code == "execution_failed"
    assert (await handle.wait_async(WITHIN_S)).state == "failed", "wait returns however it ended"


async def test_a_timeout_leaves_the_execution_alone(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_job({"name": "later", "task": {"kind": "noop"}})
        made = await client.trigger("later", wire.RunNow(at=datetime(2099, 1, 1, tzinfo=UTC)))
    handle = ms.Handle[None](made.execution_id, "later", execution=made)
    with pytest.raises(TimeoutError, match="of later is still waiting"):
        await handle.result_async(0)
    with pytest.raises(ms.WaitTimedOut):
        await asyncio.to_thread(handle.result, 0)
    assert (await handle.cancel_async("not needed")).state == "cancelled"
    with pytest.raises(ms.ExecutionFailed, match="ended as cancelled"):
        await handle.result_async(WITHIN_S)


@pytest.mark.usefixtures("worker")
async def test_a_map_submits_one_execution_for_each_element() -> None:
    handles = await asyncio.to_thread(app.greet.map, ["a", "b", "c"], greeting="hi")
    assert [await handle.result_async(WITHIN_S) for handle in handles] == ["hi, a", "hi, b", "hi, c"]
    handles = await app.greet.map_async(["a", "b"], ["x", "y"])
    assert [await handle.result_async(WITHIN_S) for handle in handles] == ["x, a", "y, b"]
    with pytest.raises(ValueError, match="shorter"):
        await app.greet.map_async(["a", "b"], ["x"])
    with pytest.raises(TypeError, match="got 3 iterables for 2 parameters"):
        await app.greet.map_async(["a"], ["b"], ["c"])
    with pytest.raises(AttributeError, match=r"call fetch\(\)"):
        _ = handles[0].state
    ids = await app.greet.submit_many_async([{"name": "a"}, {"name": "b"}])
    assert len({*ids}) == 2 and all(isinstance(found, UUID) for found in ids)


@pytest.mark.usefixtures("worker")
async def test_parameters_may_have_the_names_of_options() -> None:
    handle = await asyncio.to_thread(app.plan.options(key="only-once").submit, at="noon", key="k", conn=3)
    again = await app.plan.options(key="only-once").submit_async(at="noon", key="k", conn=3)
    assert handle.execution_id == again.execution_id
    assert await handle.result_async(WITHIN_S) == ["noon", "k", 3]
    with pytest.raises(TypeError, match=r"plan\.submit\(at=\.\.\.\) is ambiguous.*plan\.options\(at=\.\.\.\)"):
        app.plan.submit(at="noon")
    with pytest.raises(TypeError, match="one for each"):
        app.greet.options(key="k").map(["a"])
    later = await app.plan.options(at="2099-01-01T00:00").submit_async(at="noon", key="k")
    assert (later.state, later.due_at) == ("waiting", datetime(2099, 1, 1, tzinfo=UTC))
    await later.cancel_async()


@pytest.mark.usefixtures("worker")
async def test_blocking_calls_work_in_a_running_event_loop() -> None:
    """As in the cell of a notebook: the loop runs, and the call blocks it. The server must be another process."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle = await asyncio.to_thread(_in_a_loop_of_its_own)
        gc.collect()  # a connection that the loop left open would warn
    assert handle == "hello, notebook"


def _in_a_loop_of_its_own() -> str:
    async def cell() -> str:
        handle = app.greet.submit(name="notebook")
        assert handle.result(WITHIN_S) == "hello, notebook"
        return await handle.result_async(WITHIN_S)

    return asyncio.run(cell())


@pytest.mark.usefixtures("worker")
async def test_wrong_parameters_name_the_parameter() -> None:
    with pytest.raises(Invalid, match=r"/params/greting: unknown parameter 'greting' \(did you mean 'greeting'\?\)"):
        await app.greet.submit_async(name="a", greting="b")
