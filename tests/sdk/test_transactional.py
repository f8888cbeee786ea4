"""`submit(conn=)` on connections of every supported driver: with the caller's transaction, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import mainspring as ms
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound
from mainspring.embedded.server import EmbeddedServer
from mainspring.sdk.transactional import submit_on, submit_on_async
from tests.conftest import Cluster
from tests.sdk import app
from tests.support.processes import until_async

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("at_home")]

WITHIN_S = 60.0


class Undone(Exception):
    """Rolls the transaction back."""


@pytest.fixture(scope="module")
async def dsn(cluster: Cluster) -> str:
    """The module's database, with the jobs of the application and a table of its own."""
    connection = await asyncpg.connect(cluster.database.dsn)
    await connection.execute("CREATE TABLE public.orders (number text PRIMARY KEY)")
    await connection.close()
    async with cluster.client() as client:
        for job in (app.greet, app.plan):
            await client.create_job(job.declaration.spec)
    return cluster.database.dsn


INSERT = "INSERT INTO public.orders VALUES ('{}')"


# Each opens a transaction, which commits at the end of the block and rolls back if the block raises.


@contextmanager
def in_psycopg(dsn: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        yield connection, connection.execute


@contextmanager
def in_psycopg_autocommit(dsn: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    with psycopg.connect(dsn, autocommit=True) as connection, connection.transaction():
        yield connection, connection.execute


@contextmanager
def in_sqlalchemy(dsn: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with engine.begin() as connection:
            yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))
    finally:
        engine.dispose()


@contextmanager
def in_sqlalchemy_session(dsn: str) -> Iterator[tuple[Any, Callable[[str], Any]]]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with Session(engine) as session, session.begin():
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))
    finally:
        engine.dispose()


@asynccontextmanager
async def in_psycopg_async(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection, connection.execute


@asynccontextmanager
async def in_asyncpg(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    connection = await asyncpg.connect(dsn)
    await connection.set_type_codec("jsonb", encoder=repr, decoder=eval, schema="pg_catalog")  # a codec of the caller's
    try:
        async with connection.transaction():
            yield connection, connection.execute
    finally:
        await connection.close()


@asynccontextmanager
async def in_asyncpg_pool(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection, connection.execute


@asynccontextmanager
async def in_sqlalchemy_async(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn))
    try:
        async with engine.begin() as connection:
            yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))
    finally:
        await engine.dispose()


@asynccontextmanager
async def in_sqlalchemy_async_session(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))
    finally:
        await engine.dispose()


@asynccontextmanager
async def in_sqlalchemy_psycopg_async(dsn: str) -> AsyncIterator[tuple[Any, Callable[[str], Any]]]:
    connect = psycopg.AsyncConnection.connect
    engine = create_async_engine("postgresql+psycopg://", async_creator=lambda: connect(dsn))
    try:
        async with engine.begin() as connection:
            yield connection, lambda sql: connection.execute(sqlalchemy.text(sql))
    finally:
        await engine.dispose()


BLOCKING = [in_psycopg, in_psycopg_autocommit, in_sqlalchemy, in_sqlalchemy_session]
ASYNC = [
    in_psycopg_async,
    in_asyncpg,
    in_asyncpg_pool,
    in_sqlalchemy_async,
    in_sqlalchemy_async_session,
    in_sqlalchemy_psycopg_async,
]


def work_blocking(driver: Any, dsn: str, order: str, *, fails: bool, **params: Any) -> ms.Handle[str]:
    with driver(dsn) as (connection, execute):
        execute(INSERT.format(order))
        handle: ms.Handle[str] = app.greet.submit(conn=connection, key=order, **params)
        if fails:
            raise Undone
        return handle


async def work_async(driver: Any, dsn: str, order: str, *, fails: bool, **params: Any) -> ms.Handle[str]:
    async with driver(dsn) as (connection, execute):
        await execute(INSERT.format(order))
        handle: ms.Handle[str] = await app.greet.submit(conn=connection, key=order, **params)
        if fails:
            raise Undone
        return handle


async def work(driver: Any, dsn: str, order: str, *, fails: bool = False, **params: Any) -> ms.Handle[str]:
    if driver in BLOCKING:
        return await asyncio.to_thread(work_blocking, driver, dsn, order, fails=fails, **params)
    return await work_async(driver, dsn, order, fails=fails, **params)


async def orders(dsn: str, number: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM public.orders WHERE number = $1", number))
    finally:
        await connection.close()


async def appeared(client: AsyncClient, execution_id: UUID) -> Any:
    """The execution, once the leader has been notified and has moved it."""
    found: list[Any] = []

    async def exists() -> bool:
        with contextlib.suppress(NotFound):
            found.append(await client.execution(execution_id))
        return bool(found)

    await until_async(f"execution {execution_id}", exists, within_s=WITHIN_S)
    return found[0]


@pytest.mark.parametrize("driver", [*BLOCKING, *ASYNC], ids=lambda driver: driver.__name__)
async def test_the_execution_exists_if_and_only_if_the_caller_commits(driver: Any, cluster: Cluster, dsn: str) -> None:
    number = f"{driver.__name__}-{uuid4()}"
    greeting = f'quo"te \u2603 {number}'
    with pytest.raises(Undone):
        await work(driver, dsn, number, fails=True, name="a", greeting=greeting)
    assert await orders(dsn, number) == 0
    handle = await work(driver, dsn, number, name="a", greeting=greeting)
    assert await orders(dsn, number) == 1 and handle.execution is None
    async with cluster.client() as client:
        made = await appeared(client, handle.execution_id)
    assert (made.job, made.params) == ("greet", {"name": "a", "greeting": greeting})
    async with cluster.database.connection() as connection:
        found = await connection.fetch("SELECT execution_id FROM executions WHERE params ->> 'greeting' = $1", greeting)
    assert [row["execution_id"] for row in found] == [handle.execution_id], "the rolled back one left nothing"


def many_blocking(driver: Any, dsn: str, names: list[str], *, fails: bool) -> tuple[list[UUID], list[UUID]]:
    with driver(dsn) as (connection, _):
        many = app.greet.submit_many([{"name": name} for name in names], keys=names, conn=connection)
        mapped = app.greet.options(conn=connection).map(names, greeting="mapped")
        if fails:
            raise Undone
        return many, [handle.execution_id for handle in mapped]


async def many_async(driver: Any, dsn: str, names: list[str], *, fails: bool) -> tuple[list[UUID], list[UUID]]:
    async with driver(dsn) as (connection, _):
        many = await app.greet.submit_many([{"name": name} for name in names], keys=names, conn=connection)
        mapped = await app.greet.options(conn=connection).map(names, greeting="mapped")
        if fails:
            raise Undone
        return many, [handle.execution_id for handle in mapped]


@pytest.mark.parametrize("driver", [*BLOCKING, *ASYNC], ids=lambda driver: driver.__name__)
async def test_many_exist_if_and_only_if_the_caller_commits(driver: Any, cluster: Cluster, dsn: str) -> None:
    names = [f"{driver.__name__}-{n}-{uuid4()}" for n in range(3)]

    async def submit(*, fails: bool = False) -> tuple[list[UUID], list[UUID]]:
        if driver in BLOCKING:
            return await asyncio.to_thread(many_blocking, driver, dsn, names, fails=fails)
        return await many_async(driver, dsn, names, fails=fails)

    with pytest.raises(Undone):
        await submit(fails=True)
    many, mapped = await submit()
    again, mapped_again = await submit()
    assert again == many and len(set(many + mapped)) == 6, "the same keys are the same executions"
    async with cluster.client() as client:
        found = [await appeared(client, execution_id) for execution_id in (*many, *mapped, *mapped_again)]
    assert [e.params for e in found[:3]] == [{"name": name} for name in names]
    assert [e.params for e in found[3:6]] == [{"name": name, "greeting": "mapped"} for name in names]
    async with cluster.database.connection() as connection:
        count = await connection.fetchval("SELECT count(*) FROM executions WHERE params ->> 'name' = ANY($1)", names)
    assert count == 3 + 6, "what was rolled back left nothing"


async def test_more_than_one_statement_of_many(dsn: str) -> None:
    async with in_asyncpg(dsn) as (connection, _):
        made = await app.greet.submit_many(({"name": str(n)} for n in range(2_001)), conn=connection)
        rows = await connection.fetch("SELECT execution_id, params ->> 'name' FROM mainspring.submissions")
        names = dict(tuple(row) for row in rows)
        assert [names[execution_id] for execution_id in made] == [str(n) for n in range(2_001)]
        assert await app.greet.submit_many([], conn=connection) == []
        with pytest.raises(Invalid, match="colour"):
            await app.greet.submit_many([{"name": "a"}, {"name": "b", "colour": "red"}], conn=connection)
        with pytest.raises(TypeError, match="keys="):
            await app.greet.options(conn=connection, key="k").submit_many([{"name": "a"}])
        assert await connection.fetchval("SELECT 1") == 1, "wrong parameters do not end the transaction"
        await connection.execute("DELETE FROM mainspring.submissions")


@pytest.mark.parametrize("driver", [in_psycopg, in_asyncpg], ids=lambda driver: driver.__name__)
async def test_a_transaction_that_is_repeated_submits_once(driver: Any, cluster: Cluster, dsn: str) -> None:
    key = str(uuid4())

    async def repeat(**more: Any) -> ms.Handle[str]:
        if driver is in_asyncpg:
            async with in_asyncpg(dsn) as (connection, _):
                return await app.greet.submit_async(conn=connection, key=key, name="a", **more)
        return await asyncio.to_thread(repeat_blocking, **more)

    def repeat_blocking(**more: Any) -> ms.Handle[str]:
        with in_psycopg(dsn) as (connection, _):
            handle: ms.Handle[str] = app.greet.submit(conn=connection, key=key, name="a", **more)
            return handle

    first, second = await repeat(), await repeat()
    async with cluster.client() as client:
        await appeared(client, first.execution_id)
    third = await repeat()
    assert first.execution_id == second.execution_id == third.execution_id


async def test_the_result_of_a_transactional_submission(cluster: Cluster, dsn: str) -> None:
    async with cluster.worker(modules=(app.__name__,), name="app"):
        async with in_asyncpg(dsn) as (connection, _):
            handle = await app.greet.submit(conn=connection, name="a")
        assert await handle.result_async(WITHIN_S) == "hello, a"
        blocking = await asyncio.to_thread(work_blocking, in_psycopg, dsn, str(uuid4()), fails=False, name="b")
        assert await asyncio.to_thread(blocking.result, WITHIN_S) == "hello, b"


async def test_a_handle_that_was_rolled_back_says_so(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    handle = await app.greet.submit(conn=connection, name="a")
    await transaction.rollback()
    await connection.close()
    with pytest.raises(NotFound, match="was the transaction that submitted it committed"):
        await handle.result_async(0.2)


async def test_options_leave_all_names_to_the_parameters(cluster: Cluster, dsn: str) -> None:
    async with in_asyncpg(dsn) as (connection, _):
        handle = await app.plan.options(conn=connection, at="2099-01-01T00:00+01:00").submit(at="noon", key="k", conn=1)
    async with cluster.client() as client:
        made = await appeared(client, handle.execution_id)
    assert (made.params, made.due_at.isoformat()) == (
        {"at": "noon", "key": "k", "conn": 1},
        "2098-12-31T23:00:00+00:00",
    )


# Errors -------------------------------------------------------------------------------------------------


async def test_wrong_parameters_are_refused_before_the_transaction_is_touched(dsn: str) -> None:
    async with in_asyncpg(dsn) as (connection, execute):
        with pytest.raises(Invalid, match=r"/params/nmae: unknown parameter 'nmae' \(did you mean 'name'\?\)"):
            await app.greet.submit(conn=connection, nmae="a")
        with pytest.raises(Invalid, match="/params/greeting: the parameter 'greeting' is a string"):
            await app.greet.submit(conn=connection, name="a", greeting=5)
        await execute("SELECT 1")


async def test_a_connection_without_a_transaction_is_refused(dsn: str) -> None:
    plain = await asyncpg.connect(dsn)
    with pytest.raises(
        RuntimeError, match=r"this connection is in none: begin one, `async with conn\.transaction\(\):`"
    ):
        await app.greet.submit(conn=plain, name="a")
    await plain.close()
    with psycopg.connect(dsn, autocommit=True) as autocommits, pytest.raises(RuntimeError, match=r"with conn\.trans"):
        app.greet.submit(conn=autocommits, name="a")


@pytest.mark.parametrize("conn", [sqlite3.connect(":memory:"), "postgresql://localhost/db", object()])
def test_what_is_no_connection_to_postgresql_is_refused(conn: Any) -> None:
    with pytest.raises(TypeError, match="conn= takes a PostgreSQL connection of asyncpg, psycopg, SQLAlchemy"):
        app.greet.submit(conn=conn, name="a")
    with pytest.raises(TypeError, match="conn= takes a PostgreSQL connection"):
        app.greet.options(conn=conn).submit_many([{"name": "a"}])


def in_each_driver(dsn: str, values: Any) -> list[Callable[[], Awaitable[Any]]]:
    async def blocking(driver: Any) -> None:
        with driver(dsn) as (connection, _):
            submit_on(connection, values)

    async def coroutine(driver: Any) -> None:
        async with driver(dsn) as (connection, _):
            await submit_on_async(connection, values)

    return [*(partial(blocking, driver) for driver in BLOCKING), *(partial(coroutine, driver) for driver in ASYNC)]


async def test_refusals_of_the_database_are_errors_of_the_client(dsn: str) -> None:
    for attempt in in_each_driver(dsn, ("nothing", None, None, None)):
        with pytest.raises(NotFound, match=r"there is no job 'nothing' \(register it first, for example by starting"):
            await attempt()
    for attempt in in_each_driver(dsn, ("greet", "[1]", None, None)):
        with pytest.raises(Invalid, match="params must be a JSON object"):
            await attempt()
    key = str(uuid4())
    async with in_asyncpg(dsn) as (connection, _):
        await submit_on_async(connection, ("greet", '{"name": "a"}', "2099-01-01T00:00Z", key))
        with pytest.raises(Conflict, match="was used for a different request"):
            async with connection.transaction():
                await submit_on_async(connection, ("greet", '{"name": "b"}', "2099-01-01T00:00Z", key))


async def test_another_database_says_what_to_do(postgres: EmbeddedServer) -> None:
    for attempt in in_each_driver(postgres.dsn_for("postgres"), ("greet", None, None, None)):
        with pytest.raises(NotFound, match=r"this connection's database has no function mainspring\.submit"):
            await attempt()


# Privileges ---------------------------------------------------------------------------------------------


@pytest.fixture
async def role(postgres: EmbeddedServer, dsn: str) -> AsyncIterator[tuple[str, str]]:
    """A role without privileges, and its connection string for the module's database."""
    name = f"app-{uuid4().hex[:8]}"  # needs quotes
    admin = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await admin.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'secret'")
    yield name, dsn.replace(dsn.split("//")[1].split("@")[0], f"{name}:secret")
    database = await asyncpg.connect(dsn)
    await database.execute("SELECT mainspring.revoke_submit($1)", name)
    await database.close()
    await admin.execute(f'DROP ROLE "{name}"')
    await admin.close()


async def test_a_role_may_submit_once_it_is_allowed_and_nothing_else(role: tuple[str, str], dsn: str) -> None:
    name, own = role
    owner = await asyncpg.connect(dsn)

    async def submit() -> ms.Handle[str]:
        async with in_asyncpg(own) as (connection, _):
            handle: ms.Handle[str] = await app.greet.submit(conn=connection, name="a")
            return handle

    with pytest.raises(Forbidden, match=r"may not submit; .* SELECT mainspring\.allow_submit\('ROLE'\)"):
        await submit()
    await owner.execute("SELECT mainspring.allow_submit($1)", name)
    await submit()
    connection = await asyncpg.connect(own, server_settings={"search_path": "mainspring"})
    for forbidden in (
        "SELECT * FROM submissions", "SELECT * FROM jobs", "SELECT * FROM tokens", "DELETE FROM submitting_roles",
        "INSERT INTO submitting_roles VALUES ('x', 1)", "SELECT allow_submit('mainspring')",
        "SELECT drop_partition('history', '2099-01-01')", "SELECT submitting_tenant()", "CREATE TABLE mine ()",
    ):  # fmt: skip
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(forbidden)
    # Objects of the caller do not get between the function and its tables.
    await connection.execute("CREATE TEMP TABLE jobs (job_id uuid, tenant_id int, name text, deleted_at timestamptz)")
    await connection.execute("INSERT INTO jobs VALUES (gen_random_uuid(), 1, 'mine', NULL)")
    with pytest.raises(asyncpg.PostgresError, match="there is no job 'mine'"):
        await connection.execute("SELECT mainspring.submit('mine')")
    await connection.close()
    await owner.execute("SELECT mainspring.revoke_submit($1)", name)
    with pytest.raises(Forbidden):
        await submit()
    await owner.close()


async def test_a_role_submits_jobs_of_its_tenant_only(
    role: tuple[str, str], dsn: str, postgres: EmbeddedServer
) -> None:
    name, own = role
    owner = await asyncpg.connect(dsn)
    await owner.execute("INSERT INTO mainspring.tenants (name) VALUES ('other') ON CONFLICT DO NOTHING")
    with pytest.raises(asyncpg.PostgresError, match="there is no tenant 'nobody'"):
        await owner.execute("SELECT mainspring.allow_submit($1, 'nobody')", name)
    await owner.execute("SELECT mainspring.allow_submit($1, 'other')", name)
    with pytest.raises(NotFound, match="there is no job 'greet'"):
        async with in_asyncpg(own) as (connection, _):
            await app.greet.submit(conn=connection, name="a")
    # A member of the role has its tenant, and a role without a binding has none, whatever role it sets.
    admin = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await admin.execute(f'CREATE ROLE "{name}-member" LOGIN PASSWORD \'secret\' IN ROLE "{name}"')
    try:
        await owner.execute("SELECT mainspring.allow_submit($1, 'default')", name)
        async with in_asyncpg(own.replace(f"{name}:", f"{name}-member:")) as (connection, execute):
            await execute(f'SET ROLE "{name}"')
            assert await app.greet.submit(conn=connection, name="a")
    finally:
        await admin.execute(f'DROP ROLE "{name}-member"')
        await admin.close()
        await owner.close()
