"""Row-level security: servers connect with roles that own nothing, and a tenant's connection sees one tenant only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainspring.embedded.server import EmbeddedServer
from mainspring.store import retention
from mainspring.store.database_roles import RoleMissing, check_role, check_roles, grant_roles, role_notes
from mainspring.store.db import Connection, Database, connection_settings
from mainspring.store.migrate import NotOwner, migrate
from mainspring.store.queries import all_queries, q
from tests.conftest import clone
from tests.support.database_roles import server_urls
from tests.support.unchecked_rows import insert, without_constraints

pytestmark = [pytest.mark.anyio, pytest.mark.requirement(139)]

OWN, FOREIGN = 1, 2
TENANT_TABLES = """
SELECT c.oid::regclass::text AS name, c.relispartition AS is_partition, c.relrowsecurity AS is_protected,
       (SELECT array_agg(p.polname ORDER BY p.polname) FROM pg_policy p WHERE p.polrelid = c.oid) AS policies
FROM pg_class c WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p')
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')
ORDER BY c.relname
"""
APPEND_ONLY = ("audit", "history", "log_chunks", "job_versions", "workflow_versions", "calendar_versions")


async def connect(url: str) -> asyncpg.Connection[Any]:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url, server_settings=connection_settings())
    return connection


@pytest.fixture(scope="module")
async def url(postgres: EmbeddedServer) -> str:
    """A database with one row of each of two tenants in every table, valid or not."""
    url = await clone(postgres)
    owner = await connect(url)
    await without_constraints(owner)
    for table in await tables(owner):
        await owner.execute(f"DELETE FROM {table}")
        for tenant in (OWN, FOREIGN):
            await insert(owner, table, tenant)
    await owner.close()
    return url


@pytest.fixture
async def owner(url: str) -> AsyncIterator[Connection]:
    connection = await connect(url)
    yield connection
    await connection.close()


@pytest.fixture
async def tenant(url: str) -> AsyncIterator[Connection]:
    """A connection of the tenant role that is set to the tenant OWN."""
    connection = await connect(server_urls(url)["tenant_database_url"])
    await connection.execute(q("set_tenant"), str(OWN))
    yield connection
    await connection.close()


@pytest.fixture
async def server(url: str) -> AsyncIterator[Connection]:
    connection = await connect(server_urls(url)["database_url"])
    yield connection
    await connection.close()


async def tables(connection: Connection) -> list[str]:
    return [r["name"] for r in await connection.fetch(TENANT_TABLES) if not r["is_partition"]]


async def test_every_table_with_tenants_has_a_policy(database: Database) -> None:
    async with database.connection() as connection:
        found = await connection.fetch(TENANT_TABLES)
    assert len(found) > 40
    assert [r["name"] for r in found if not r["is_protected"]] == []
    assert [r["name"] for r in found if not r["is_partition"] and "one_tenant" not in (r["policies"] or ())] == []
    assert [r["name"] for r in found if r["is_partition"] and r["policies"]] == [], "reached through the parent only"


async def test_a_migration_that_adds_a_table_protects_it(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute("CREATE TABLE added (tenant_id int NOT NULL, value text)")
        await connection.execute("INSERT INTO added VALUES (1, 'own'), (2, 'foreign')")
    await migrate(fresh.dsn)
    urls = server_urls(fresh.dsn)
    async with Database(urls["database_url"], tenant_dsn=urls["tenant_database_url"]) as database:
        async with database.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM added") == 2
        async with database.of(1).connection() as connection:
            assert [r["value"] for r in await connection.fetch("SELECT value FROM added")] == ["own"]


async def test_a_tenant_reads_no_foreign_row(owner: Connection, tenant: Connection) -> None:
    for table in await tables(owner):
        assert await owner.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", FOREIGN) > 0, table
        if not await owner.fetchval("SELECT has_table_privilege($1, $2, 'SELECT')", "mainspring_tenant", table):
            continue
        assert [r[0] for r in await tenant.fetch(f"SELECT DISTINCT tenant_id FROM {table}")] == [OWN], table
        assert await tenant.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", FOREIGN) == 0, table


async def test_a_view_shows_no_foreign_row(tenant: Connection, server: Connection) -> None:
    assert await server.fetchval("SELECT count(DISTINCT tenant_id) FROM all_executions") == 2
    assert [r[0] for r in await tenant.fetch("SELECT DISTINCT tenant_id FROM all_executions")] == [OWN]


async def test_a_tenant_writes_no_foreign_row(owner: Connection, tenant: Connection) -> None:
    for table in await tables(owner):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await insert(tenant, table, FOREIGN)
        for statement in (f"UPDATE {table} SET tenant_id = tenant_id", f"DELETE FROM {table}"):
            transaction = tenant.transaction()
            await transaction.start()
            try:
                tag = await tenant.execute(f"{statement} WHERE tenant_id = {FOREIGN}")
                assert tag.endswith(" 0"), (table, tag)
                await tenant.execute(statement)
            except asyncpg.InsufficientPrivilegeError:
                pass
            finally:
                await transaction.rollback()
        assert await owner.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", FOREIGN) == 1, table


async def test_a_tenant_gives_no_row_away(owner: Connection, tenant: Connection) -> None:
    for table in await tables(owner):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await tenant.execute(f"UPDATE {table} SET tenant_id = {FOREIGN}")


async def test_without_a_tenant_no_row_is_visible(url: str, owner: Connection) -> None:
    connection = await connect(server_urls(url)["tenant_database_url"])
    for setting in (None, ""):
        if setting is not None:
            await connection.execute(q("set_tenant"), setting)
        for table in await tables(owner):
            try:
                assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
            except asyncpg.InsufficientPrivilegeError:
                continue
    await connection.close()


@pytest.mark.parametrize("statement", ["SET ROLE mainspring_server", "SET SESSION AUTHORIZATION mainspring_server",
                                       "SET row_security = off; SELECT * FROM jobs", "SELECT * FROM server_keys",
                                       "SELECT * FROM history_default"])  # fmt: skip
async def test_a_tenant_role_has_no_way_around(tenant: Connection, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await tenant.execute(statement)


async def test_shared_workers_are_visible_to_every_tenant(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await without_constraints(connection)
        for table in ("workers", "sessions", "plugins"):
            for number in (OWN, FOREIGN):
                await insert(connection, table, number)
        await connection.execute(
            "UPDATE sessions s SET worker_id = w.worker_id FROM workers w WHERE w.tenant_id = s.tenant_id"
        )
        await connection.execute("UPDATE sessions SET shared = true WHERE tenant_id = $1", FOREIGN)
        await connection.execute("UPDATE plugins SET shared = true WHERE tenant_id = $1", FOREIGN)
    seen = await connect(server_urls(fresh.dsn)["tenant_database_url"])
    await seen.execute(q("set_tenant"), str(OWN))
    for table in ("workers", "sessions", "plugins"):
        assert {r[0] for r in await seen.fetch(f"SELECT tenant_id FROM {table}")} == {OWN, FOREIGN}, table
    assert await seen.execute(f"DELETE FROM sessions WHERE tenant_id = {FOREIGN}") == "DELETE 0"
    await seen.close()


OF_THE_OWNER = {
    *("protect_table", "grant_role"),
    *("create_restored_rows", "create_restored_partition", "restore_rows", "attach_restored_partition"),
}
"""Statements of commands that an operator runs with the role that owns the schema."""


async def test_the_server_role_runs_every_statement(server: Connection) -> None:
    """EXPLAIN checks privileges as execution does."""
    for name, sql in all_queries().items():
        if name in OF_THE_OWNER:
            continue
        try:
            await server.execute(f"EXPLAIN (GENERIC_PLAN) {sql}")
        except asyncpg.InsufficientPrivilegeError as error:
            pytest.fail(f"{name}: {error}")


async def test_the_server_role_sees_all_tenants_without_a_filter(owner: Connection, server: Connection) -> None:
    for table in await tables(owner):
        assert await server.fetchval(f"SELECT count(DISTINCT tenant_id) FROM {table}") == 2, table
    plan = "\n".join(r[0] for r in await server.fetch("EXPLAIN SELECT * FROM executions WHERE tenant_id = 1"))
    assert "current_tenant" not in plan and "InitPlan" not in plan


async def test_the_server_role_owns_nothing_and_keeps_append_only_tables(server: Connection) -> None:
    assert await server.fetchval("SELECT count(*) FROM pg_class WHERE relowner = session_user::regrole") == 0
    found = await server.fetch(TENANT_TABLES)
    for table in (r["name"] for r in found):
        assert not await server.fetchval("SELECT has_table_privilege($1, 'TRUNCATE')", table), table
    for table in APPEND_ONLY:
        for privilege in ("UPDATE", "DELETE"):
            assert not await server.fetchval("SELECT has_table_privilege($1, $2)", table, privilege), table
    for statement in (
        "CREATE TABLE mine (a int)",
        "DROP TABLE history_default",
        "ALTER TABLE jobs DISABLE TRIGGER ALL",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await server.execute(statement)


async def test_the_server_role_creates_and_drops_partitions(fresh: Database) -> None:
    async with Database(server_urls(fresh.dsn)["database_url"]) as database, database.connection() as connection:
        made = await retention.make_partitions(connection, days=30)
        assert len(made) > 10
        assert not await connection.fetchval("SELECT has_table_privilege($1, 'SELECT')", made[0])
        for call in ("make_partitions(-1)", "make_partitions(100000)", "drop_partition('jobs', '2020-01-01')",
                     "drop_partition('history', 'infinity')"):  # fmt: skip
            with pytest.raises(asyncpg.RaiseError):
                await connection.execute(f"SELECT {call}")
    async with Database(server_urls(fresh.dsn)["tenant_database_url"]) as database, database.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("SELECT make_partitions(1)")


async def test_a_pooled_connection_is_set_only_when_its_tenant_changes(fresh: Database) -> None:
    urls = server_urls(fresh.dsn)
    statements: list[str] = []
    async with Database(urls["database_url"], size=1, tenant_dsn=urls["tenant_database_url"]) as database:
        async with database.of(1).connection() as connection:
            connection.add_query_logger(lambda record: statements.append(record.query))
        for number in (1, 1, 2, 2, 1):
            async with database.of(number).connection() as connection:
                assert await connection.fetchval("SELECT current_tenant()") == number
    assert statements.count(q("set_tenant")) == 2


async def test_a_statement_that_fails_leaves_the_tenant_set(fresh: Database) -> None:
    urls = server_urls(fresh.dsn)
    async with Database(urls["database_url"], size=1, tenant_dsn=urls["tenant_database_url"]) as database:
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with database.of(2).transaction() as connection:
                await connection.fetchval("SELECT 1 / 0")
        async with database.of(2).connection() as connection:
            assert await connection.fetchval("SELECT current_tenant()") == 2


async def test_granting_again_changes_nothing(fresh: Database) -> None:
    urls = server_urls(fresh.dsn)
    rights = "SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'mainspring'::regnamespace ORDER BY 1"
    async with fresh.connection() as connection:
        before = await connection.fetch(rights)
        again = await grant_roles(fresh.dsn, server_url=urls["database_url"], tenant_url=urls["tenant_database_url"])
        assert again == ["mainspring_server", "mainspring_tenant"]
        assert await connection.fetch(rights) == before


async def test_granting_creates_missing_roles_with_their_passwords(postgres: EmbeddedServer, fresh: Database) -> None:
    parts = urlsplit(fresh.dsn)
    other = parts._replace(netloc="other_server:pa%20ss@").geturl()
    assert await grant_roles(fresh.dsn, server_url=other, tenant_url=None) == ["other_server"]
    async with Database(other) as database:
        await check_roles(database)
        assert len(await role_notes(database)) == 1
    admin = await asyncpg.connect(postgres.superuser_dsn(parts.path[1:]))
    await admin.execute("DROP OWNED BY other_server; DROP ROLE other_server")
    await admin.close()


async def test_an_owner_is_refused_as_a_role_of_servers(fresh: Database) -> None:
    with pytest.raises(RoleMissing, match="owns the schema"):
        await grant_roles(fresh.dsn, server_url=fresh.dsn, tenant_url=None)
    async with Database(fresh.dsn, tenant_dsn=fresh.dsn) as database:
        with pytest.raises(RoleMissing, match="row-level security does not apply"):
            await check_roles(database)
    async with Database(server_urls(fresh.dsn)["database_url"]) as database, database.connection() as connection:
        with pytest.raises(RoleMissing, match=r"serves all tenants|lacks"):
            await check_role(connection, "tenant")


async def test_a_missing_grant_is_named(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute("REVOKE INSERT ON jobs FROM mainspring_server")
    async with Database(server_urls(fresh.dsn)["database_url"]) as database:
        with pytest.raises(
            RoleMissing, match=r"lacks INSERT on jobs: run `mainspring db migrate --server-database-url"
        ):
            await check_roles(database)


async def test_a_server_that_owns_nothing_starts_but_does_not_migrate(fresh: Database) -> None:
    url = server_urls(fresh.dsn)["database_url"]
    assert await migrate(url) == []
    async with fresh.connection() as connection:
        await connection.execute("DELETE FROM migrations WHERE number = (SELECT max(number) FROM migrations)")
    with pytest.raises(NotOwner, match=r"mainspring_server .* run `mainspring db migrate`"):
        await migrate(url)


async def test_an_installation_that_connects_as_owner_works_and_is_warned(fresh: Database) -> None:
    await check_roles(fresh)
    notes = await role_notes(fresh)
    assert "connects to PostgreSQL as mainspring, which may change the schema" in notes[0]
    assert fresh.of(1) is fresh
