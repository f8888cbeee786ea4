"""Every hint is lost, and everything still completes: periodic checks find the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.duties import service as duties
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.bus import PostgresBus
from tests.conftest import clone, started
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

WAIT_S = 90


@dataclass
class Silent:
    """A cluster with a worker whose bus publishes nothing, and the channels of the hints it lost."""

    client: AsyncClient
    lost: set[str] = field(default_factory=set)

    async def ends(self, execution: wire.Execution) -> str:
        return (await self.client.wait(execution.execution_id, timeout_s=WAIT_S)).state


@pytest.fixture(scope="module")
async def silent(postgres: EmbeddedServer) -> AsyncIterator[Silent]:
    lost: set[str] = set()

    def lose(_: PostgresBus, channel: str, payload: str, **__: Any) -> None:
        lost.add(channel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresBus, "publish", lose)
        patch.setattr(duties, "LONGEST_WAIT_S", 2.0)  # half a minute in production
        async with (
            started(await clone(postgres), session_lease_s=4.0) as cluster,
            cluster.worker(),
            cluster.client() as client,
        ):
            yield Silent(client, lost)


async def test_a_submission_is_executed(silent: Silent) -> None:
    await silent.client.create_job({"name": "plain", "task": {"kind": "noop"}})
    items = [wire.BatchItem(job="plain") for _ in range(20)]
    made = (await silent.client.submit(items)).items
    for item in made:
        assert item.execution_id is not None
        assert (await silent.client.wait(item.execution_id, timeout_s=WAIT_S)).state == "succeeded"
    assert "mainspring_queued" in silent.lost


async def test_a_retry_is_executed(silent: Silent) -> None:
    task = {"kind": "shell", "shell": True, "argv": ['test "$MAINSPRING_ATTEMPT" -gt 1']}
    retries = {"max": 3, "base": 0.1}
    await silent.client.create_job({"name": "flaky", "task": task, "retries": retries})
    ended = await silent.client.wait((await silent.client.trigger("flaky")).execution_id, timeout_s=WAIT_S)
    assert (ended.state, ended.attempt) == ("succeeded", 2)
    assert "mainspring_shards" in silent.lost


async def test_an_edited_schedule_fires(silent: Silent) -> None:
    spec = {"name": "edited", "task": {"kind": "noop"}, "schedule": {"cron": "0 0 1 1 *"}}
    await silent.client.create_job(spec)
    await silent.client.patch_job("edited", {"schedule": {"every": "1s"}})

    async def has_fired() -> bool:
        return "succeeded" in {e.state for e in (await silent.client.history("edited")).items}

    await until_async("a fire of the new schedule", has_fired, within_s=WAIT_S)


async def test_a_running_execution_is_cancelled(silent: Silent) -> None:
    await silent.client.create_job({"name": "endless", "task": {"kind": "shell", "argv": ["sleep", "1000"]}})
    execution = await silent.client.trigger("endless")

    async def is_running() -> bool:
        return (await silent.client.execution(execution.execution_id)).state == "running"

    await until_async("its start", is_running, within_s=WAIT_S)
    await silent.client.cancel(execution.execution_id)
    assert await silent.ends(execution) == "cancelled"
    assert "mainspring_cancel" in silent.lost


async def test_the_steps_of_a_workflow_are_executed(silent: Silent) -> None:
    steps = {"first": {"task": {"kind": "noop"}}, "second": {"task": {"kind": "noop"}, "needs": ["first"]}}
    await silent.client.apply_workflow({"name": "flow", "steps": steps})
    run = await silent.client.start_run("flow")

    async def is_over() -> bool:
        return (await silent.client.run(run.run_id)).state != "running"

    await until_async("the end of the run", is_over, within_s=WAIT_S)
    found = await silent.client.run(run.run_id)
    assert [step.state for step in found.steps] == ["succeeded", "succeeded"]
