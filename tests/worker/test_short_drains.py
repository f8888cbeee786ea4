"""Many short drains of Python functions, with random delays wherever a task of server or worker awaits something.

A wake-up that is lost only in some order of events shows itself here as a drain that does not end. Seeded: TEST_SEED.
"""

from __future__ import annotations

import asyncio
import os
import random
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from mainspring import wire
from mainspring.embedded.server import EmbeddedServer
from tests.conftest import Cluster, clone, started
from tests.support.figures import record
from tests.support.seeds import SEED
from tests.support.tcp_proxy import later

SECONDS = float(os.environ.get("RACE_SECONDS", "8"))
LONGEST_S = 30.0
"""Of one drain; undisturbed it takes some milliseconds."""
DELAYED, DELAY_S = 0.15, 0.004
APP = "tests.worker.app.jobs"


@types.coroutine
def delayed(work: Coroutine[Any, Any, Any], rng: random.Random) -> Generator[Any, Any, Any]:
    """Run a coroutine, with a pause before some of its steps. What happens during a pause is delivered after it."""
    value: Any = None
    error: BaseException | None = None
    while True:
        if rng.random() < DELAYED:
            try:
                yield from later(rng.random() * DELAY_S).__await__()
            except BaseException as cancelled:
                error = cancelled
        try:
            awaited = work.send(value) if error is None else work.throw(error)
        except StopIteration as stopped:
            return stopped.value
        value, error = None, None
        try:
            value = yield awaited
        except BaseException as thrown:
            error = thrown


def delays(loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
    def task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(delayed(work, rng), loop=loop, **more)

    loop.set_task_factory(task)


async def drains(cluster: Cluster, rng: random.Random, seconds: float, *, streams: bool) -> int:
    """Submit a few calls and wait for their ends, again and again; return how often."""
    loop, count = asyncio.get_running_loop(), 0
    async with cluster.client() as client, cluster.worker(slots=rng.randint(1, 4), modules=(APP,), streams=streams):
        end = loop.time() + seconds
        while loop.time() < end:
            items = [wire.BatchItem(job="nothing") for _ in range(rng.choice([1, 1, 2, 3, 7, 20]))]
            ids = [item.execution_id for item in (await client.submit(items)).items]
            try:
                async with asyncio.timeout(LONGEST_S):
                    for execution in ids:
                        found = await client.wait(str(execution), timeout_s=LONGEST_S)
                        assert found.state == "succeeded", found
            except TimeoutError:
                page = await client.executions(limit=50)
                live = [(e.execution_id, e.state, e.attempt, e.worker) for e in page.items if e.finished_at is None]
                raise AssertionError(f"drain {count} of seed {SEED} did not end: {live}") from None
            count += 1
    return count


@pytest.mark.fault
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "poll"])
async def test_every_short_drain_ends(postgres: EmbeddedServer, streams: bool) -> None:
    rng = random.Random(SEED)
    loop = asyncio.get_running_loop()
    async with started(await clone(postgres)) as cluster, cluster.client() as client:
        await client.create_job({"name": "nothing", "task": {"kind": "python", "function": f"{APP}:nothing"}})
        delays(loop, rng)
        try:
            count = await drains(cluster, rng, SECONDS, streams=streams)
        finally:
            loop.set_task_factory(None)
    record(f"short drains ({'stream' if streams else 'poll'})", drains=count, seconds=SECONDS)
    assert count > 3
