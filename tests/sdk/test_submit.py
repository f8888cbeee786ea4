"""`.submit()` against a real server, from code without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import mainspring as ms
from mainspring.client import AsyncClient, SubmitFailed
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.sdk.job import Declaration
from mainspring.sdk.submit import Submitter
from tests.conftest import Cluster
from tests.worker.app import jobs as app

pytestmark = pytest.mark.anyio


async def register(client: AsyncClient) -> None:
    with contextlib.suppress(Conflict):
        await client.create_job(app.report.declaration.spec)


@pytest.mark.usefixtures("at_home")
async def test_a_function_is_submitted_with_its_parameters(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await register(client)
        made = await asyncio.to_thread(app.report.submit, region="us")
        assert (made.job, made.params, made.state) == ("report", {"region": "us"}, "queued")
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
        later = await asyncio.to_thread(app.report.submit, at=at.replace(tzinfo=None).isoformat(), key="once")
        again = await asyncio.to_thread(app.report.submit, at=at, key="once")
        assert (later.state, later.due_at, later.execution_id) == ("waiting", at, again.execution_id)
        with pytest.raises(Invalid, match="unknown parameter 'regoin'"):
            await asyncio.to_thread(app.report.submit, regoin="us")


@pytest.mark.usefixtures("at_home")
async def test_a_job_nobody_registered_says_what_registers_it() -> None:
    spec = {"name": f"job-{uuid4()}", "task": {"kind": "python", "function": "app.jobs:x"}, "params": {}}
    with pytest.raises(NotFound, match=r"register it by starting a worker: mainspring worker -m app\.jobs"):
        await asyncio.to_thread(Submitter(Declaration(spec, "x.py", 1)).submit)


@pytest.mark.usefixtures("at_home")
async def test_a_workflow_is_started_with_its_parameters(cluster: Cluster) -> None:
    @ms.workflow(name="started")
    def started(flow: ms.Flow, day: str = "monday") -> None:
        flow.approval("sign")

    with pytest.raises(NotFound, match=r"mainspring workflows apply FILE\.py"):
        await asyncio.to_thread(started.start)
    async with cluster.client() as client:
        await client.apply_workflow(started.spec)
    run = await asyncio.to_thread(started.start, day="tuesday", key="once")
    again = await asyncio.to_thread(started.start, day="tuesday", key="once")
    assert (run.state, run.params, run.run_id) == ("running", {"day": "tuesday"}, again.run_id)
    with pytest.raises(Invalid):
        await asyncio.to_thread(started.start, dya="tuesday")


@pytest.mark.usefixtures("at_home")
async def test_many_are_submitted_in_order(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await register(client)
        regions = [f"r{n}" for n in range(2500)]
        run = f"{uuid4()}"
        keys = [f"{run}-{n}" for n in range(2500)]
        ids = await asyncio.to_thread(app.report.submit_many, [{"region": r} for r in regions], keys=keys)
        assert len(set(ids)) == 2500
        for n in (0, 999, 1000, 2499):
            assert (await client.execution(ids[n])).params == {"region": regions[n]}
        again = await asyncio.to_thread(app.report.submit_many, [{"region": r} for r in regions], keys=keys)
        assert again == ids


@pytest.mark.usefixtures("at_home")
async def test_items_that_cannot_be_submitted_are_listed(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await register(client)
    params = [{"region": "us"}, {"regoin": "us"}, {"region": "eu"}]
    with pytest.raises(SubmitFailed, match=r"1 of 3 items were not submitted: item 1: .*regoin") as failed:
        await asyncio.to_thread(app.report.submit_many, params)
    first, second, third = failed.value.execution_ids
    assert first is not None and second is None and third is not None and list(failed.value.errors) == [1]
    with pytest.raises(ValueError, match="shorter"):
        await asyncio.to_thread(app.report.submit_many, params, keys=["one"])


@pytest.mark.usefixtures("at_home")
async def test_many_of_an_unregistered_job() -> None:
    spec = {"name": f"job-{uuid4()}", "task": {"kind": "python", "function": "app.jobs:x"}, "params": {}}
    with pytest.raises(NotFound, match=r"mainspring worker -m app\.jobs"):
        await asyncio.to_thread(Submitter(Declaration(spec, "x.py", 1)).submit_many, [{}])
