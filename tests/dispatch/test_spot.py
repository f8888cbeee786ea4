"""Spot workers: only jobs that tolerate them run there; losing one charges no retry."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Invalid
from mainspring.domain.execution import POISON_AFTER_LOST_SPOT
from mainspring.domain.job import JobSpec, NoopTask, check
from mainspring.domain.placement.demand import SPOT, Demand, can_run, lacks, read_demand
from mainspring.domain.retry import RetryPolicy
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.testing import AsyncCluster
from mainspring.testing.worker import LEASE_S, TENANT, TestWorker
from tests.conftest import clone

pytestmark = pytest.mark.anyio
IS_SPOT = {SPOT: "yes"}


@pytest.fixture
async def cluster(postgres: EmbeddedServer) -> Any:
    async with AsyncCluster(await clone(postgres), workers=0) as found:
        yield found


async def create(cluster: AsyncCluster, name: str, **fields: Any) -> None:
    await jobs.create(cluster._database, JobSpec(name=name, task=NoopTask(), **fields), tenant=TENANT, by="test")


async def run(cluster: AsyncCluster, name: str, times: int = 1) -> list[Any]:
    for _ in range(times):
        await cluster.client.trigger(name)
    await cluster.run_until_idle()
    return await cluster.executions(name)


async def lose(cluster: AsyncCluster, worker: TestWorker, job: str, times: int) -> None:
    """Let the worker die in that many attempts."""
    attempt = 0
    while attempt < times:
        worker.crash(before=job)
        await cluster.travel(seconds=LEASE_S / 2)
        (found,) = await cluster.executions(job)
        attempt = found.attempt
    worker.crash(before="nothing")


async def test_a_spot_worker_gets_only_jobs_that_tolerate_it(cluster: AsyncCluster) -> None:
    spot = cluster.add_worker("spot", labels=IS_SPOT)
    for name, fields in (("default", {}), ("never", {"spot": "never"}), ("tolerant", {"spot": "tolerate"})):
        await create(cluster, name, **fields)
        await cluster.client.trigger(name)
    await cluster.travel(seconds=1)
    assert spot.executed == ["tolerant"]
    (waiting,) = await cluster.executions("default", states=["queued"])
    why = await cluster.client.why(waiting.execution_id)
    assert "spot: tolerate" in why.reasons[0].message
    steady = cluster.add_worker("steady")
    await cluster.run_until_idle()
    assert sorted(steady.executed) == ["default", "never"]


@pytest.mark.requirement(82)
async def test_a_job_that_prefers_spot_takes_it_and_falls_back(cluster: AsyncCluster) -> None:
    await create(cluster, "render", spot="prefer", overlap="allow")
    steady = cluster.add_worker("steady", slots=8)
    await run(cluster, "render")
    assert steady.executed == ["render"], "without a spot worker it does not wait for one"
    spot = cluster.add_worker("spot", slots=2, labels=IS_SPOT)
    for _ in range(3):
        await cluster.client.trigger("render")
    await cluster.run_until_idle()
    assert (spot.executed, steady.executed) == (["render"] * 2, ["render"] * 2), "two slots there, the third here"


async def test_losing_a_spot_worker_charges_no_retry(cluster: AsyncCluster) -> None:
    await create(cluster, "render", spot="tolerate", retries=RetryPolicy(max=0))
    worker = cluster.add_worker("spot", labels=IS_SPOT)
    await cluster.client.trigger("render")
    await lose(cluster, worker, "render", POISON_AFTER_LOST_SPOT - 1)
    await cluster.travel(seconds=30)
    (found,) = await cluster.executions("render")
    assert (found.state, found.attempt) == ("succeeded", POISON_AFTER_LOST_SPOT)
    detail = await cluster.client.execution(found.execution_id)
    assert {attempt.outcome for attempt in detail.attempts[:-1]} == {"lost"}


async def test_a_steady_worker_charges_the_retry(cluster: AsyncCluster) -> None:
    """What a spot worker does not: the same job, lost on another machine."""
    await create(cluster, "render", spot="tolerate", retries=RetryPolicy(max=0))
    worker = cluster.add_worker("steady")
    await cluster.client.trigger("render")
    worker.crash(before="render")
    await cluster.travel(seconds=30)
    (found,) = await cluster.executions("render")
    assert found.state == "lost"


async def test_what_ends_every_spot_worker_fails_at_last(cluster: AsyncCluster) -> None:
    await create(cluster, "poison", spot="tolerate")
    worker = cluster.add_worker("spot", labels=IS_SPOT)
    await cluster.client.trigger("poison")
    await lose(cluster, worker, "poison", POISON_AFTER_LOST_SPOT)
    await cluster.travel(seconds=30)
    (found,) = await cluster.executions("poison")
    assert found.state == "failed" and found.reason is not None and "poison" in found.reason


@given(
    spot=st.sampled_from(["", "tolerate", "prefer"]),
    labels=st.dictionaries(st.sampled_from(["zone", "disk"]), st.sampled_from(["eu", "*"]), max_size=2),
)
def test_a_demand_reads_back(spot: str, labels: dict[str, str]) -> None:
    demand = Demand("shell", labels, {}, False, "", spot)
    assert read_demand(demand.key) == demand
    has = {"zone": "eu", "disk": "eu"}
    assert can_run(demand, ["shell"], has) and not lacks(demand, ["shell"], has, {})
    assert can_run(demand, ["shell"], has | IS_SPOT) == bool(spot) == (not lacks(demand, ["shell"], has | IS_SPOT, {}))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"spot": "prefer", "delivery": "at_most_once", "retries": RetryPolicy(max=0)}, "/spot"),
        ({"labels": {SPOT: "yes"}}, f"/labels/{SPOT}"),
    ],
)
def test_what_contradicts_spot_is_refused(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        check(JobSpec(name="render", task=NoopTask(), **fields))
    assert [problem.pointer for problem in refused.value.problems] == [pointer]
