"""Shares between tenants, aging between priorities, and lines an older program left behind."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.dispatch import service
from mainspring.domain.grants import EVERYTHING
from mainspring.store import queues
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.worker.transport.api_client import Refused
from tests.conftest import Cluster, started
from tests.support.dispatchers import TENANT, Fleet, fleet
from tests.support.remote_worker import remote
from tests.support.settling import SettlingBench
from tests.support.tenants import add_tenant

pytestmark = pytest.mark.anyio


async def flooded(found: Fleet, other: int, *, flood: int = 1500) -> None:
    """One tenant has long been waiting with a flood when the other comes with ten."""
    await found.submit(await found.job("flood", priority=10), flood)
    await found.submit(await found.job("few", tenant=other, priority=0), 10, tenant=other)


@pytest.mark.requirement(81)
@pytest.mark.parametrize("slots", [1, 4, 50])
async def test_a_flood_delays_another_tenant_by_no_more_than_its_share(fresh: Database, slots: int) -> None:
    """Alone, ten executions would be the first ten to start. Beside a flood, whatever its priority, they start within
    twice that, and one round of what was already running."""
    async with fleet(fresh, dispatchers=1) as found:
        await flooded(found, await add_tenant(fresh, "other"))
        session = await found.session(slots=slots, shared=True)

        def enough() -> bool:
            return sum(name == "few" for name, _ in found.started) == 10

        await found.work(found.dispatchers[0], session, enough, slots=slots)
        last = max(n for n, (name, _) in enumerate(found.started) if name == "few")
        assert last < 2 * 10 + slots


async def test_a_weight_is_a_larger_share(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        other = await add_tenant(fresh, "other")
        async with fresh.connection() as connection:
            await queues.set_tenant_share(connection, tenant=TENANT, weight=3, cap=None)
        await flooded(found, other, flood=200)
        session = await found.session(slots=4, shared=True)
        await found.work(found.dispatchers[0], session, lambda: len(found.started) >= 16, slots=4)
        assert sum(name == "flood" for name, _ in found.started[:16]) in (11, 12, 13)


async def test_a_worker_of_one_tenant_sees_no_other(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        other = await add_tenant(fresh, "other")
        await flooded(found, other, flood=20)
        session = await found.session(slots=50, tenant=other)
        poll = wire.Poll(session_id=session, free=50, wait_s=5)
        polled = await found.dispatchers[0].poll(poll, tenant=other)
        assert len(polled.executions) == 10
        assert {d.name for d in polled.definitions.values()} == {"few"}


async def test_sharing_is_a_right_of_its_own(database_url: str) -> None:
    async with started(database_url) as cluster, cluster.client() as client:
        async with cluster.database.connection() as connection:
            far = await issue_token(
                connection,
                tenant=await add_tenant(cluster.database, "far"),
                name="f",
                scopes=("worker", "shared"),
                grants=EVERYTHING,
            )
        for token in (cluster.token, cluster.worker_token):
            with pytest.raises(Refused, match="shared"):
                async with remote(cluster, token=token, shared=True):
                    pass
        async with remote(cluster, token=far, shared=True) as worker:
            job = await client.create_job({"name": "j", "task": {"kind": "noop"}})
            assert job.warnings == [], "a shared worker counts"
            execution = (await client.trigger("j")).execution_id
            (given,) = (await worker.poll()).executions
            assert given.execution_id == execution
            await client.cancel(execution)
            beat = await worker.beat(execution)
            assert (beat.cancels, beat.gone) == ([execution], []), "of whatever tenant"
            await worker.tell(given, "cancelled")
            assert (await client.execution(execution)).state == "cancelled"


@pytest.mark.requirement(71)
async def test_priority_first_but_nothing_starves(bench: SettlingBench, virtual: VirtualClock) -> None:
    """A level of priority is worth a quarter of an hour of waiting."""
    low, high = await bench.job(priority=2), await bench.job(priority=7)
    session = await bench.session(lease_s=1e6)

    async def order() -> list[UUID]:
        return [row["execution_id"] for row in await bench.claim(session, slots=9)]

    first, second = await bench.submit(low), await bench.submit(high)
    assert await order() == [second, first], "the same age: the higher one"
    first = await bench.submit(low)
    await virtual.advance(minutes=74)
    second = await bench.submit(high)
    assert await order() == [second, first], "five levels are 75 minutes"
    first = await bench.submit(low)
    await virtual.advance(minutes=76)
    second = await bench.submit(high)
    assert await order() == [first, second]


@pytest.fixture
def bench(fresh: Database) -> SettlingBench:
    return SettlingBench(fresh)


OLD_INSERT = (
    "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, state, trigger, queue, rank,"
    " fire_at, due_at, queued_at) SELECT $2, job_id, tenant_id, version, shard, priority, 'queued', 'manual', queue,"
    " 1000, db_now(), db_now(), db_now() FROM jobs WHERE job_id = $1 RETURNING pg_notify('mainspring_queued', queue)"
)


async def test_what_an_older_program_queued_finds_its_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """During an upgrade programs that know no lines write jobs and executions, and say only the queue."""
    monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)
    queue = f"q{uuid4().hex}"
    async with cluster.client() as client, remote(cluster, queue=queue) as worker:
        spec: dict[str, Any] = {"task": {"kind": "noop"}, "queue": queue, "concurrency": {"limit": 1}}
        job = await client.create_job({"name": queue, **spec})
        executions = [uuid4(), uuid4()]
        async with cluster.database.connection() as connection:
            await connection.execute("UPDATE jobs SET line_id = 0, limit_id = NULL WHERE job_id = $1", job.job_id)
            for execution in executions:
                await connection.execute(OLD_INSERT, job.job_id, execution)
        (given,) = (await worker.poll(free=5)).executions
        assert given.execution_id == min(executions)
        async with cluster.database.connection() as connection:
            row = await connection.fetchrow("SELECT * FROM executions WHERE execution_id = $1", given.execution_id)
            assert row is not None
            assert row["line_id"] > 0 and row["limit_id"] is not None and row["rank"] == 1000 - 5 * 900_000
            assert await connection.fetchval("SELECT line_id FROM jobs WHERE job_id = $1", job.job_id) == row["line_id"]
