"""`mainspring db migrate` grants the roles of servers; a restore does not need them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.server import EmbeddedServer
from mainspring.store.database_roles import check_roles
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.database_roles import server_urls
from tests.support.invoke import Invoke

pytestmark = pytest.mark.anyio


@pytest.fixture
async def empty(postgres: EmbeddedServer) -> str:
    name = "without_roles"
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    return postgres.dsn_for(name)


async def run(invoke: Invoke, *words: str) -> str:
    result = await asyncio.to_thread(invoke, *words)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


async def check(url: str) -> None:
    urls = server_urls(url)
    async with Database(urls["database_url"], tenant_dsn=urls["tenant_database_url"]) as database:
        await check_roles(database)


def granting(url: str) -> list[str]:
    urls = server_urls(url)
    server = ["--server-database-url", urls["database_url"]]
    return ["db", "migrate", "--database-url", url, *server, "--tenant-database-url", urls["tenant_database_url"]]


async def test_migrating_with_the_urls_of_servers_grants_their_roles(invoke: Invoke, empty: str) -> None:
    for _ in range(2):
        shown = await run(invoke, *granting(empty))
        assert "granted mainspring_server" in shown and "granted mainspring_tenant" in shown
        await check(empty)


async def test_a_restore_leaves_roles_out_until_they_are_granted(
    invoke: Invoke, postgres: EmbeddedServer, empty: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup"
    source = await clone(postgres)
    await run(invoke, "db", "backup", str(file), "--database-url", source)
    await run(invoke, "db", "restore", str(file), "--yes", "--database-url", empty)
    async with Database(empty, size=1) as database, database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_policy WHERE polname LIKE 'all_of_%'") == 0
        assert await connection.fetchval("SELECT count(*) FROM pg_policy WHERE polname = 'one_tenant'") > 40
        assert not await connection.fetchval(
            "SELECT has_function_privilege('public', 'drop_partition(text, date)', 'EXECUTE')"
        )
    await run(invoke, *granting(empty))
    await check(empty)
