"""A server behind a real PgBouncer in transaction mode, which has four sessions for all of its connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import UUID

import asyncpg
import pytest

from mainspring.cli.serve import wait_for_database
from mainspring.config import ServeConfig
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.database_check import check_sessions
from mainspring.store.database_roles import grant_roles
from mainspring.store.db import Database
from mainspring.store.pooler import SessionNeeded
from tests.conftest import Cluster, started
from tests.support.pgbouncer import PgBouncer
from tests.support.processes import free_port, until_async

pytestmark = pytest.mark.anyio

IGNORED = "ignore_startup_parameters = search_path, idle_in_transaction_session_timeout, jit"


@pytest.fixture(scope="module")
async def listening(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A PostgreSQL that listens on a port, as PgBouncer runs as another user."""
    server = EmbeddedServer(tmp_path_factory.mktemp("pg"), port=free_port())
    await server.start()
    yield server
    await server.stop()


@pytest.fixture(scope="module")
async def pooler(listening: EmbeddedServer) -> AsyncIterator[PgBouncer]:
    async with PgBouncer(listening.dsn, listening.server_dsn(), pool_size=4) as pooler:
        yield pooler


@pytest.fixture(scope="module")
async def pooled(listening: EmbeddedServer, pooler: PgBouncer) -> AsyncIterator[Cluster]:
    config = ServeConfig(pooler.url, direct_database_url=listening.dsn)
    await wait_for_database(config)
    await grant_roles(listening.dsn, server_url=listening.server_dsn(), tenant_url=listening.tenant_dsn())
    urls = {"direct_database_url": listening.dsn, "tenant_database_url": listening.tenant_dsn()}
    async with started(pooler.url, **urls) as cluster:
        yield cluster


async def test_fires_submissions_workflows_and_live_events_pass_a_pooler(pooled: Cluster) -> None:
    seen: set[UUID] = set()
    echo = {"kind": "shell", "argv": ["echo", "out"]}
    async with pooled.worker(slots=16), pooled.client() as client:

        async def follow() -> None:
            async for execution in client.feed():
                seen.add(execution.execution_id)

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            await client.create_job({"name": "often", "task": {"kind": "noop"}, "schedule": {"every": 1}})
            await client.create_job({"name": "echo", "task": echo})
            steps = {"a": {"task": echo}, "b": {"task": echo, "needs": ["a"]}, "c": {"task": echo, "needs": ["a"]}}
            await client.apply_workflow({"name": "flow", "steps": steps})
            run = await client.start_run("flow")
            submitted = await asyncio.gather(*(client.trigger("echo") for _ in range(100)))
            ended = [await client.wait(e.execution_id, timeout_s=60) for e in submitted]
            assert {e.state for e in ended} == {"succeeded"}
            assert (await client.wait(run.run_id, timeout_s=60)).state == "succeeded"
            logs = await client.logs(submitted[0].execution_id)
            assert "out" in str(logs)

            async def fired() -> bool:
                return len((await client.executions(job="often", state=("succeeded",))).items) >= 3

            await until_async("three fires", fired, within_s=30)
            assert (await client.doctor()).findings == []
            following.cancel()
    assert len(seen & {e.execution_id for e in submitted}) > 50


async def test_the_sessions_of_the_pooler_are_shared_and_hold_no_prepared_statements(
    pooled: Cluster, pooler: PgBouncer, listening: EmbeddedServer
) -> None:
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(pooled.database.transaction()) for _ in range(4)]  # all sessions
        for each in held:
            assert await each.fetch("SELECT name, statement FROM pg_prepared_statements") == []
        path = await held[0].fetchval("SELECT current_setting('search_path')")
        idle = await held[1].fetchval("SELECT current_setting('idle_in_transaction_session_timeout')")
    assert (path, idle) == ("mainspring", "15s")
    direct = await asyncpg.connect(listening.superuser_dsn())
    sessions = await direct.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE client_port > 0 AND usename = $1", "mainspring"
    )
    assert 0 < sessions <= 4
    await direct.close()


async def test_a_pooler_where_a_session_is_needed_is_refused_with_the_option_to_change(
    pooled: Cluster, pooler: PgBouncer, listening: EmbeddedServer
) -> None:
    with pytest.raises(SessionNeeded, match="--direct-database-url"):
        await wait_for_database(ServeConfig(pooler.url))
    async with PgBouncer(listening.dsn, listening.tenant_dsn(), settings=IGNORED) as lenient:
        with pytest.raises(SessionNeeded, match="--database-url leads through a pooler in transaction mode"):
            await check_sessions(Database(lenient.url))
        with pytest.raises(SessionNeeded, match="--direct-database-url leads through"):
            await check_sessions(Database(pooler.url, direct_dsn=lenient.url))
        tenant = lenient.through(listening.tenant_dsn())
        with pytest.raises(SessionNeeded, match="--tenant-database-url leads through"):
            await check_sessions(Database(listening.dsn), tenant_dsn=tenant)
    async with PgBouncer(listening.dsn, settings=IGNORED, mode="session") as keeping:
        await check_sessions(Database(pooler.url, direct_dsn=keeping.url))


async def test_sessions_without_the_search_path_are_refused(listening: EmbeddedServer, pooled: Cluster) -> None:
    async with PgBouncer(listening.superuser_dsn()) as other:
        with pytest.raises(SessionNeeded, match=r"search_path \"\$user\", public"):
            await check_sessions(Database(other.url, direct_dsn=listening.dsn))
