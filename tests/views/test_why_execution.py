"""Why an execution waits: every reason, each provoked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.store import why as why_store
from mainspring.views import why_execution
from tests.conftest import Cluster
from tests.support.remote_worker import remote


@pytest.fixture
def queue() -> str:
    return f"q{uuid4().hex}"


async def submit(client: AsyncClient, queue: str, at: str | None = None, **spec: Any) -> UUID:
    body = {"name": f"job-{uuid4()}", "task": {"kind": "noop"}, "queue": queue, "retries": {"max": 1}, **spec}
    job = await client.create_job(body)
    return (await client.trigger(job.name)).execution_id


async def codes(client: AsyncClient, execution: UUID) -> list[str]:
    return [reason.code for reason in (await client.why(execution)).reasons]


async def reason(client: AsyncClient, execution: UUID, code: str) -> wire.Reason:
    return next(r for r in (await client.why(execution)).reasons if r.code == code)


async def test_no_worker_and_what_the_closest_lacks(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client:
        plain = await submit(client, queue)
        assert (await reason(client, plain, "no_worker")).message == f"no worker serves the queue {queue}"
        async with remote(
            cluster, name="near", queue=queue, kinds=["noop"], labels={"zone": "us"}, resources={"cpu": 2000}
        ) as worker:
            assert await codes(client, plain) == ["next"]
            shell = await submit(client, queue, task={"kind": "shell", "argv": ["true"]})
            assert "the executor 'shell'" in (await reason(client, shell, "no_fit")).message
            labels = await submit(client, queue, labels={"zone": "eu"})
            assert "zone=eu (it has zone=us)" in (await reason(client, labels, "no_fit")).message
            large = await submit(client, queue, resources={"cpu": 4, "gpu": 1})
            assert (
                "near, lacks cpu 4 (it has 2) and gpu 1 (it has 0)" in (await reason(client, large, "no_fit")).message
            )
            (given,) = (await worker.poll()).executions
            assert (await reason(client, plain, "running")).message == "it runs on near, attempt 1"
            await worker.tell(given)
            assert (await reason(client, plain, "ended")).message == "it has ended: succeeded"


async def test_it_is_said_at_creation_if_no_worker_fits(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, name="one", queue=queue, resources={"cpu": 2000}):
        spec = {"name": queue, "task": {"kind": "noop"}, "queue": queue}
        assert (await client.create_job(spec)).warnings == []
        changed = await client.patch_job(queue, {"resources": {"cpu": 3}})
        assert changed.warnings == ["no worker matches: the closest, one, lacks cpu 3 (it has 2)"]
        assert (await client.job(queue)).spec.resources == {"cpu": 3}, "a warning, not an error"


async def test_limits_rates_and_caps_with_their_holders(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        key = {"key": queue, "limit": 1}
        holder = await submit(client, queue, concurrency=key)
        assert [g.execution_id for g in (await worker.poll()).executions] == [holder]
        kept = await submit(client, queue, concurrency=key)
        assert (await reason(client, kept, "limit")).holders == [holder]
        assert [(k.key, [h.execution_id for h in k.holders]) for k in (await client.queues()).limits if k.key == queue]
        paced = await submit(client, queue, rate={"key": queue, "limit": 1, "per": "1h"})
        assert [g.execution_id for g in (await worker.poll()).executions] == [paced]
        later = await submit(client, queue, rate={"key": queue, "limit": 1, "per": "1h"})
        assert (await reason(client, later, "rate")).until is not None
        await client.set_queue(queue, {"cap": 2, "paused": True})
        assert (await codes(client, later))[:3] == ["queue_paused", "rate", "queue_cap"]
        found = next(q for q in (await client.queues()).items if q.name == queue)
        assert (found.depth, found.running, found.workers, found.slots, found.exact) == (2, 2, 1, 100, True)
        assert found.by_priority == {"5": 2} and found.oldest_s >= 0


async def test_what_is_held_back_is_not_about_to_start(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        rate = {"key": queue, "limit": 1, "per": "1h"}
        first = await submit(client, queue, rate=rate)
        assert await worker.ids() == [first]
        later, last = await submit(client, queue, rate=rate), await submit(client, queue, rate=rate)
        assert await codes(client, later) == ["rate"]
        assert [r.message for r in (await client.why(last)).reasons][1:] == ["1 ahead of it, when that is over"]


async def test_what_is_due_has_no_time_to_wait_until(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client:
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        later = datetime.now(UTC) + timedelta(hours=1)
        execution = (await client.trigger(job.name, wire.RunNow(at=later))).execution_id
        assert (await reason(client, execution, "not_due")).until is not None
        async with cluster.database.transaction() as connection:
            # Before the scheduler has noticed: it sees the change once this has been looked at.
            await connection.execute(
                "UPDATE executions SET due_at = db_now() - interval '1 s' WHERE execution_id = $1", execution
            )
            row = await why_store.pending_execution(connection, tenant=1, execution_id=execution)
            assert row is not None
            found = why_execution._waiting(row)
        assert (found.code, found.until) == ("due", None) and "about to be queued" in found.message


async def test_busy_workers_and_how_many_are_ahead(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, slots=1) as worker:
        first = await submit(client, queue)
        assert [g.execution_id for g in (await worker.poll()).executions] == [first]
        await worker.beat(first)
        second, third = await submit(client, queue), await submit(client, queue)
        assert await codes(client, second) == ["busy"]
        busy = await reason(client, third, "busy")
        assert busy.message == "the worker remote is busy; 1 ahead of it" and busy.holders == [first]


async def test_not_due_retrying_overlapping_and_jobs(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        execution = await submit(client, queue)
        (given,) = (await worker.poll()).executions
        await worker.tell(given, "failed")
        retry = await reason(client, execution, "retry")
        assert retry.until is not None and "attempt 1 failed" in retry.message
        job = await client.create_job({"name": queue, "task": {"kind": "noop"}, "schedule": {"cron": "0 0 1 1 *"}})
        assert [r.code for r in (await client.why_job(job.name)).reasons] == ["not_due"]
        await client.pause_job(job.name, "for now")
        assert [r.message for r in (await client.why_job(job.name)).reasons] == ["the job is paused: for now"]
        demand = await client.create_job({"name": f"{queue}-x", "task": {"kind": "noop"}, "queue": queue})
        assert [r.code for r in (await client.why_job(demand.name)).reasons] == ["no_fire"]
        waiting = await client.trigger(demand.name)
        found = await client.why_job(demand.name)
        assert (found.execution_id, found.state) == (waiting.execution_id, "queued")
