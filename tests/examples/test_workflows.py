"""Each example, executed by real workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.manifest import read_workflows, write_workflow
from tests.conftest import Cluster
from tests.support.principals import without_ids

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"


async def apply(client: AsyncClient, name: str) -> None:
    for spec in read_workflows((EXAMPLES / f"{name}.yaml").read_text()):
        await client.apply_workflow(spec)


async def ended(client: AsyncClient, run: wire.Run) -> wire.Run:
    await client.wait(run.run_id, timeout_s=60)
    return await client.run(run.run_id)


def states(run: wire.Run) -> dict[str, str]:
    return {step.name: step.state for step in run.steps}


async def output(client: AsyncClient, run: wire.Run, name: str) -> str:
    step = next(step for step in run.steps if step.name == name)
    assert step.execution_id is not None
    return "".join(chunk.text for chunk in (await client.logs(step.execution_id)).chunks)


async def test_the_etl(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    async with cluster.client() as client, cluster.worker(modules=("etl_jobs",), name="etl"):
        await apply(client, "etl")
        run = await ended(client, await client.start_run("etl", {"day": "tue"}))
        assert run.state == "succeeded"
        assert states(run)["publish"] == "succeeded" and states(run)["warn"] == "skipped"
        assert next(s for s in run.steps if s.name == "check").result == {"rows": 15}
        assert await output(client, run, "publish") == "published 15 rows of tue\n"


async def test_the_pipeline(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker(name="ci"):
        await apply(client, "ci")
        run = await ended(client, await client.start_run("ci"))
        assert run.state == "partial"
        assert {n for n, state in states(run).items() if state != "succeeded"} == {"flaky"}
        assert await output(client, run, "report") == "unit succeeded, flaky failed\n"


async def test_the_release(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker(name="release"):
        await apply(client, "release")
        run = await client.start_run("release")
        await reached(client, run, "sign")
        await client.decide(run.run_id, "sign", approved=True, note="looks good")
        await reached(client, run, "confirm")
        await client.send_event(run.run_id, "healthy", {"hosts": 3})
        run = await ended(client, run)
        assert run.state == "succeeded"
        assert without_ids(await output(client, run, "deploy")) == "deployed, signed by test admin\n"
        assert await output(client, run, "announce") == "healthy on 3 hosts\n"


async def reached(client: AsyncClient, run: wire.Run, step: str) -> None:
    """Waits for the step before, whose end and the wait for a person are one transaction."""
    found = await client.run(run.run_id)
    before: Any = next(s for s in found.steps if s.name == step).needs[0]
    execution = next(s for s in found.steps if s.name == before).execution_id
    assert execution is not None
    await client.wait(execution, timeout_s=30)
    assert states(await client.run(run.run_id))[step] == "waiting"


@pytest.mark.parametrize("name", ["etl", "ci", "release"])
def test_what_is_written_is_read_as_the_same(name: str) -> None:
    (spec,) = read_workflows((EXAMPLES / f"{name}.yaml").read_text())
    assert read_workflows(write_workflow(spec)) == [spec]
