"""Lists, history and statistics from a real standby: read-your-writes, a replay that stands still, a dead standby."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from mainspring.telemetry import metrics
from tests.conftest import Cluster, started
from tests.support.database_roles import granted
from tests.support.processes import until_async
from tests.support.standby import Pair, execute, pair

pytestmark = [pytest.mark.anyio]


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        async with pair(Path(folder)) as servers:
            await migrate(servers.first.dsn)
            await granted(servers.first, "mainspring")
            yield servers


@pytest.fixture(scope="module")
async def replicated(servers: Pair) -> AsyncIterator[Cluster]:
    replica = {"replica_url": servers.second.tenant_dsn(), "replica_max_lag_s": 2.0}
    async with started(servers.first.dsn, **replica) as cluster:
        yield cluster


def answered_by(target: str) -> float:
    return float(metrics.READS.labels(target)._value.get())


async def names(client: AsyncClient) -> set[str]:
    return {job.name for job in (await client.jobs(limit=100)).items}


async def until_replica_answers(client: AsyncClient) -> None:
    async def answers() -> bool:
        before = answered_by("replica")
        await client.workflows()
        return answered_by("replica") > before

    await until_async("the replica answers", answers, within_s=30)


async def reader_of(cluster: Cluster) -> AsyncClient:
    async with cluster.client() as client:
        issued = await client.issue_token(wire.NewToken(name="reader", role="viewer"))
    return AsyncClient(cluster.url, issued.token)


@pytest.mark.requirement(150)
async def test_reads_come_from_the_replica_and_a_writer_sees_its_writes(replicated: Cluster, servers: Pair) -> None:
    async with replicated.client() as writer, await reader_of(replicated) as reader:
        await until_replica_answers(reader)
        await execute(servers.second, "SELECT pg_wal_replay_pause()")
        try:
            await writer.create_job({"name": "fresh", "task": {"kind": "noop"}})
            before = answered_by("primary")
            assert "fresh" in await names(writer), "the writer sees its write"
            assert answered_by("primary") == before + 1
            assert "fresh" not in await names(reader), "the other reader is served by the replica, which stands still"
            async with AsyncClient(replicated.url, replicated.token) as other:  # another connection of the same token
                assert "fresh" in await names(other)

            async def lags() -> bool:
                return "fresh" in await names(reader)  # beyond its bound, the primary answers everybody

            await until_async("the bound of the lag", lags, within_s=15)
            assert metrics.REPLICA_LAG._value.get() > 1.5
            assert any("behind" in note for note in (await writer.doctor()).notes)
        finally:
            await execute(servers.second, "SELECT pg_wal_replay_resume()")
        await until_replica_answers(reader)
        await until_replica_answers(writer)
        assert "fresh" in await names(reader)


async def test_writes_through_other_processes_are_named_by_the_client(replicated: Cluster, servers: Pair) -> None:
    async with await reader_of(replicated) as reader, httpx2.AsyncClient() as http:
        await until_replica_answers(reader)
        await execute(servers.second, "SELECT pg_wal_replay_pause()")
        try:
            named = {"Authorization": f"Bearer {replicated.token}", "Mainspring-Seen-After": "0123456789abcdef-7"}
            before = answered_by("primary")
            assert (await http.get(f"{replicated.url}/api/v1/workflows", headers=named)).status_code == 200
            assert answered_by("primary") == before + 1
        finally:
            await execute(servers.second, "SELECT pg_wal_replay_resume()")
        await until_replica_answers(reader)


@pytest.mark.requirement(150)
async def test_no_read_fails_while_the_replica_is_killed_and_returns(replicated: Cluster, servers: Pair) -> None:
    second: EmbeddedServer = servers.second
    async with await reader_of(replicated) as reader:
        await until_replica_answers(reader)
        await execute(servers.first, "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
        retried = answered_by("retried")
        await second.stop()
        for _ in range(20):
            assert "fresh" in await names(reader)
            await reader.workflows()
        assert answered_by("retried") > retried
        await second.start()
        await until_replica_answers(reader)
        await servers.promote()

        async def is_refused() -> bool:
            async with replicated.client() as client:
                return any("not a standby" in note for note in (await client.doctor()).notes)

        await until_async("the promoted replica is refused", is_refused, within_s=15)
        before = answered_by("replica")
        await names(reader)
        assert answered_by("replica") == before
