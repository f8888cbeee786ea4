"""Requeue ended executions, and statistics of a job."""

from __future__ import annotations

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Invalid
from tests.conftest import Cluster
from tests.support.api_jobs import script
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio


async def test_a_success_runs_again_with_its_parameters(cluster: Cluster, client: AsyncClient) -> None:
    params = {"n": {"type": "integer", "default": 1}}
    job = await client.create_job(script("true", params=params, description="again"))
    async with cluster.worker():
        first = await client.wait((await client.trigger(job.name, wire.RunNow(params={"n": 5}))).execution_id)
        second = await client.requeue(first.execution_id, reason="checked the report")
        assert second.execution_id != first.execution_id
        assert (second.params, second.fire_at) == (first.params, first.fire_at)
        assert (await client.requeue(first.execution_id)).execution_id == second.execution_id
        await client.wait(second.execution_id)
        third = await client.requeue(second.execution_id, params={"n": 7})
        assert third.params == {"n": 7}
        await client.wait(third.execution_id)
        with pytest.raises(Invalid):
            await client.requeue(third.execution_id, params={"m": 7})
    (entry, *_) = (await client.audit(action="execution.requeue", subject=str(first.execution_id))).items
    assert (entry.name, entry.reason) == (job.name, "checked the report")


async def test_a_failure_is_replayed_and_its_dead_letter_resolved(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("exit 3", retries={"max": 0}))
    async with cluster.worker():
        first = await client.wait((await client.trigger(job.name)).execution_id)
        await client.patch_job(job.name, {"task": {"argv": ["true"], "shell": False}})
        second = await client.requeue(first.execution_id)
        assert (second.trigger, (await client.wait(second.execution_id)).state) == ("replay", "succeeded")

        async def resolved() -> bool:
            return (await client.dead_letter(first.execution_id)).state == "resolved"

        await until_async("the dead letter is resolved", resolved, within_s=20)


async def test_a_dismissed_failure_can_be_requeued(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script("exit 3", retries={"max": 0}))
    async with cluster.worker():
        first = await client.wait((await client.trigger(job.name)).execution_id)
        await client.dismiss_dead_letter(first.execution_id, "known")
        second = await client.requeue(first.execution_id)
        assert (await client.wait(second.execution_id)).state == "failed"
    assert (await client.dead_letter(first.execution_id)).state == "dismissed"


async def test_one_that_has_not_ended_is_refused(client: AsyncClient) -> None:
    job = await client.create_job(script("true"))
    queued = await client.trigger(job.name)
    with pytest.raises(Conflict, match="only ended executions"):
        await client.requeue(queued.execution_id)


async def test_statistics_count_outcomes_and_durations(cluster: Cluster, client: AsyncClient) -> None:
    job = await client.create_job(script('test "$N" != 1', retries={"max": 0}))
    empty = await client.stats(job.name)
    assert (empty.ended, empty.success_ratio, empty.p50_ms) == (0, None, None)
    async with cluster.worker():
        for _ in range(3):
            await client.wait((await client.trigger(job.name)).execution_id)
        await client.patch_job(job.name, {"task": {"env": {"N": "1"}}})
        await client.wait((await client.trigger(job.name)).execution_id)
    found = await client.stats(job.job_id, since="1h")
    assert (found.job, found.ended, found.succeeded, found.failed) == (job.name, 4, 3, 1)
    assert found.success_ratio == 0.75
    assert found.p50_ms is not None
    assert found.p99_ms is not None
    assert found.p50_ms <= found.p99_ms
    with pytest.raises(Invalid, match="not a duration"):
        await client.stats(job.name, since="soon")
