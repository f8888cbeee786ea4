"""The right job on the right machine: kinds, labels, resources, whole workers, queues that help each other."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring.client import AsyncClient
from mainspring.dispatch import service
from mainspring.domain.errors import Invalid
from tests.conftest import Cluster
from tests.support.remote_worker import remote

GI = 2**30


@pytest.fixture
def queue() -> str:
    """A queue of the test's own."""
    return f"q{uuid4().hex}"


@pytest.fixture(autouse=True)
def _no_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here must come about by being told, not by the slow poll."""
    monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)


async def submit(client: AsyncClient, queue: str, count: int = 1, **spec: Any) -> list[UUID]:
    job = await client.create_job(
        {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 0}, **spec}
    )
    return [(await client.trigger(job.name)).execution_id for _ in range(count)]


@pytest.mark.requirement(53, 73)
async def test_four_cores_never_land_on_two(cluster: Cluster, queue: str) -> None:
    small = {"cpu": 2000, "memory": 64 * GI, "disk": 64 * GI}
    large = {"cpu": 4000, "memory": 8 * GI, "disk": 100 * GI}
    async with (
        cluster.client() as client,
        remote(cluster, name="small", queue=queue, resources=small) as two,
        remote(cluster, name="large", queue=queue, resources=large) as four,
    ):
        (cpu,) = await submit(client, queue, resources={"cpu": 4})
        (disk,) = await submit(client, queue, resources={"disk": "80Gi"})
        (memory,) = await submit(client, queue, resources={"memory": "32Gi"})
        assert await two.ids(free=100, wait_s=0.3) == [memory]
        assert await two.ids(free=100, wait_s=0.1, resources=small | {"memory": 32 * GI}) == []
        assert sorted(await four.ids(free=100)) == sorted([cpu, disk])
        found = await client.execution(cpu)
        assert found.worker == "large"
        (huge,) = await submit(client, queue, resources={"memory": "65Gi"})
        (plain,) = await submit(client, queue)
        assert await two.ids(free=1) == [plain], "what fits nobody blocks nobody"
        assert (await client.execution(huge)).state == "queued"
        for name, amount in [("cpu", "lots"), ("memory", "4 apples"), ("disk", -1), ("gpu", 0.5), ("GPU", 1)]:
            with pytest.raises(Invalid) as refused:
                await submit(client, queue, resources={name: amount})
            assert [problem.pointer for problem in refused.value.problems] == [f"/resources/{name}"]


async def test_what_is_taken_is_not_given_again(cluster: Cluster, queue: str) -> None:
    has = {"cpu": 4000}
    async with cluster.client() as client, remote(cluster, queue=queue, resources=has) as worker:
        ids = await submit(client, queue, 5, resources={"cpu": "1500m"})
        assert await worker.ids(free=100) == ids[:2], "two of 1.5 fit into 4, not three"
        assert await worker.ids(free=98, wait_s=0.1, resources={"cpu": 1000}) == []
        assert await worker.ids(free=99, resources={"cpu": 2500}) == ids[2:3]


@pytest.mark.requirement(74)
async def test_gpus_are_counted_exactly_and_kept_for_those_who_ask(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, name="none", queue=queue) as none,
        remote(cluster, name="three", queue=queue, resources={"gpu": 3}) as three,
    ):
        ids = await submit(client, queue, 4, resources={"gpu": 1})
        (two,) = await submit(client, queue, resources={"gpu": 2})
        assert await none.ids(free=100, wait_s=0.2) == []
        assert await three.ids(free=100) == ids[:3]
        assert await three.ids(free=97, wait_s=0.1, resources={"gpu": 0}) == []
        assert await three.ids(free=98, resources={"gpu": 1}) == ids[3:]
        assert await three.ids(free=99, resources={"gpu": 2}) == [two]


@pytest.mark.requirement(75)
async def test_labels_select(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, name="eu", queue=queue, labels={"zone": "eu", "disk": "ssd"}) as eu,
        remote(cluster, name="us", queue=queue, labels={"zone": "us"}) as us,
    ):
        (in_us,) = await submit(client, queue, labels={"zone": "us"})
        (anywhere,) = await submit(client, queue, labels={"zone": "*"})
        (fast,) = await submit(client, queue, labels={"zone": "eu", "disk": "ssd"})
        (nowhere,) = await submit(client, queue, labels={"zone": "us", "disk": "ssd"})
        assert await us.ids(free=1) == [in_us]
        assert sorted(await eu.ids(free=9)) == sorted([anywhere, fast])
        assert await us.ids(free=9, wait_s=0.1) == []
        assert (await client.execution(nowhere)).state == "queued"


async def test_kinds_go_where_their_executor_is(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, name="noops", queue=queue, kinds=["noop"]) as noops,
        remote(cluster, name="shells", queue=queue, kinds=["shell"]) as shells,
    ):
        (shell,) = await submit(client, queue, task={"kind": "shell", "argv": ["true"]})
        (noop,) = await submit(client, queue)
        assert await noops.ids(free=9) == [noop]
        assert await shells.ids(free=9) == [shell]


@pytest.mark.requirement(83)
async def test_a_worker_to_itself(cluster: Cluster, queue: str) -> None:
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue, slots=4) as worker,
        remote(cluster, name="single", queue=queue, slots=1) as single,
    ):
        (alone,) = await submit(client, queue, exclusive=True)
        assert await worker.ids(free=3, wait_s=0.1) == [], "it is not idle"
        others = await submit(client, queue, 3)
        assert await worker.ids(free=4) == [alone], "all of it, though others wait"
        assert await single.ids(free=1) == others[:1]
        assert await single.ids(free=0, wait_s=0.1) == [], "one slot, one execution"


@pytest.mark.requirement(76)
async def test_a_full_queue_delays_no_other_and_an_idle_one_may_help(cluster: Cluster) -> None:
    short, long = f"s{uuid4().hex}", f"l{uuid4().hex}"
    async with (
        cluster.client() as client,
        remote(cluster, name="both", queues=[short, long]) as both,
        remote(cluster, name="short only", queue=short) as short_only,
    ):
        await client.set_queue(long, {"cap": 2})
        slow = await submit(client, long, 10)
        (quick,) = await submit(client, short)
        assert sorted(await both.ids(free=9)) == sorted([*slow[:2], quick]), "the cap holds, the other queue goes on"
        assert await both.ids(free=6, wait_s=0.1) == []
        (next_quick,) = await submit(client, short)
        assert await both.ids(free=6) == [next_quick]
        await client.set_queue(long, {"cap": 3})
        assert await short_only.ids(free=9, wait_s=0.2) == [], "not its queue"
        await client.set_queue(short, {"may_help": [long]})
        (own,) = await submit(client, short)
        assert await short_only.ids(free=9) == [own], "its own first"
        assert await short_only.ids(free=8) == slow[2:3], "then it helps, and the cap holds"


async def test_a_paused_queue_starts_nothing(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        await client.set_queue(queue, {"paused": True})
        (execution,) = await submit(client, queue)
        assert await worker.ids(wait_s=0.2) == []
        await client.set_queue(queue, {"paused": False})
        assert await worker.ids() == [execution]


@pytest.mark.requirement(56)
async def test_the_expected_duration_chooses_the_queue(cluster: Cluster) -> None:
    async with cluster.client() as client:
        for expected, queue, lands in [
            (None, None, "short"),
            ("5m", None, "short"),
            ("2h", None, "long"),
            ("long", None, "long"),
            ("short", None, "short"),
            (601, None, "long"),
            ("2h", "short", "short"),
        ]:
            job = await client.create_job(
                {
                    "name": f"job-{uuid4()}",
                    "task": {"kind": "noop"},
                    "estimated_duration": expected,
                    "queue": queue,
                }
            )
            execution = await client.trigger(job.name)
            assert execution.queue == lands
            await client.cancel(execution.execution_id)


async def test_what_comes_back_with_an_old_rank_is_found(cluster: Cluster, queue: str) -> None:
    """The dispatcher looks only beyond what it has claimed; whoever queues before that place says so."""
    async with (
        cluster.client() as client,
        remote(cluster, name="lost", queue=queue) as lost,
        remote(cluster, name="kept", queue=queue) as kept,
    ):
        ids = await submit(client, queue, 6, retries={"max": 3})
        assert await lost.ids(free=2) == ids[:2]
        assert await kept.ids(free=2) == ids[2:4]
        await lost.goodbye(lost=True)
        assert await kept.ids(free=4) == [*ids[:2], *ids[4:]], "first come, first served again"


async def test_a_worker_is_kept_for_what_is_too_large(
    cluster: Cluster, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small executions that always fit would keep the large one waiting for ever."""
    monkeypatch.setattr(service, "SLOW_POLL_S", 0.02)
    async with cluster.client() as client, remote(cluster, queue=queue, slots=2, resources={"cpu": 2000}) as worker:
        await client.set_queue(queue, {"patience_s": 0})
        (small,) = await submit(client, queue)
        assert await worker.ids(free=2) == [small]
        (large,) = await submit(client, queue, resources={"cpu": 2}, exclusive=True)
        assert await worker.ids(free=1, wait_s=0.5) == [], "it is too large now, but from now on the worker is its own"
        (later,) = await submit(client, queue)
        assert await worker.ids(free=1, wait_s=0.3) == []
        assert await worker.ids(free=2) == [large]
        assert await worker.ids(free=2) == [later], "and then it is anybody's again"
