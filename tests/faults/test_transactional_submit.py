"""Transactional submissions under kill -9: of the client around its commit, and of the scheduler that moves them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest

from mainspring.domain.job import JobSpec, NoopTask
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store.db import Database, connection_settings
from mainspring.store.migrate import migrate
from tests.support.fleet import ROUNDS, Fleet
from tests.support.processes import until_async

pytestmark = pytest.mark.fault

CLIENT = """
import sys

import psycopg

from tests.sdk.app import greet

stage, dsn, order = sys.argv[1:]
connection = psycopg.connect(dsn)
connection.execute("INSERT INTO public.orders VALUES (%s) ON CONFLICT DO NOTHING", [order])
handle = greet.submit(conn=connection, key=order, name=order)
if stage == "after":
    connection.commit()
print(handle.execution_id, flush=True)
sys.stdin.read()  # until it is killed
"""
"""A program that stores an order and submits its greeting; it stops before or after the commit."""


@pytest.fixture
async def dsn(durable: EmbeddedServer, request: pytest.FixtureRequest) -> str:
    """A migrated database without a server: nothing moves submissions until a test starts a scheduler."""
    name = f"t{abs(hash(request.node.nodeid)):x}"
    connection = await asyncpg.connect(durable.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    url = durable.dsn_for(name)
    await migrate(url)
    async with Database(url, size=2) as database:
        await jobs.create(database, JobSpec(name="greet", task=NoopTask()), tenant=1, by="test")
    owner = await asyncpg.connect(url)
    await owner.execute("CREATE TABLE public.orders (number text PRIMARY KEY)")
    await owner.close()
    return url


@contextmanager
def client(stage: str, dsn: str, order: str) -> Iterator[str]:
    """A client process at a stage of its work, killed at the end of the block; gives the promised execution id."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, stage, dsn, order],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


@asynccontextmanager
async def scheduler(durable: EmbeddedServer, dsn: str, folder: Path) -> AsyncIterator[Fleet]:
    running = Fleet(durable, dsn, folder, 2.0)
    running.start()
    try:
        yield running
    finally:
        running.end()


async def ask(dsn: str, query: str) -> int:
    connection = await asyncpg.connect(dsn, server_settings=connection_settings())
    try:
        return int(await connection.fetchval(query))
    finally:
        await connection.close()


async def moved(dsn: str) -> None:
    async def none_left() -> bool:
        return await ask(dsn, "SELECT count(*) FROM submissions") == 0

    await until_async("all submissions moved", none_left, within_s=60)


async def ended(dsn: str) -> None:
    """The database has noticed that the client is dead, and rolled its transaction back."""

    async def gone() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'"
        return await ask(dsn, query) == 0

    await until_async("the rollback", gone, within_s=60)


@pytest.mark.fault("F11")
async def test_a_client_that_is_killed_before_its_commit_leaves_neither(
    durable: EmbeddedServer, dsn: str, tmp_path: Path
) -> None:
    async with scheduler(durable, dsn, tmp_path):
        with client("before", dsn, "o-1") as promised:
            assert promised
        await ended(dsn)
        assert await ask(dsn, "SELECT count(*) FROM public.orders") == 0
        # A later one with the same key is not held up, and is the only one.
        with client("after", dsn, "o-1") as promised:
            pass
        await moved(dsn)
        assert await ask(dsn, "SELECT count(*) FROM all_executions") == 1
        assert await ask(dsn, f"SELECT count(*) FROM all_executions WHERE execution_id = '{promised}'") == 1


async def test_a_commit_while_the_server_is_down_becomes_exactly_one_execution(
    durable: EmbeddedServer, dsn: str, tmp_path: Path
) -> None:
    with client("after", dsn, "o-1") as promised:
        assert promised
    assert await ask(dsn, "SELECT count(*) FROM public.orders") == 1
    assert await ask(dsn, "SELECT count(*) FROM all_executions") == 0
    with client("after", dsn, "o-1") as again:  # the retry of a client that does not know whether it committed
        assert again == promised
    async with scheduler(durable, dsn, tmp_path):
        await moved(dsn)
        with client("after", dsn, "o-1") as later:
            assert later == promised
        with client("after", dsn, "o-2") as other:
            assert other != promised
        await moved(dsn)
        assert await ask(dsn, "SELECT count(*) FROM all_executions") == 2
        assert await ask(dsn, f"SELECT count(*) FROM all_executions WHERE execution_id = '{promised}'") == 1


async def test_a_scheduler_that_is_killed_while_it_moves_loses_and_repeats_nothing(
    durable: EmbeddedServer, dsn: str, tmp_path: Path
) -> None:
    count = 5_000
    for _ in range(ROUNDS):
        before = await ask(dsn, "SELECT count(*) FROM all_executions")
        await ask(dsn, f"SELECT count(mainspring.submit('greet')) FROM generate_series(1, {count})")
        async with scheduler(durable, dsn, tmp_path):

            async def some_moved(before: int = before) -> bool:
                return await ask(dsn, "SELECT count(*) FROM all_executions") > before

            await until_async("the first batch", some_moved, within_s=60)
        # The fleet's end is a kill -9, in the middle of the rows.
        async with scheduler(durable, dsn, tmp_path):
            await moved(dsn)
        assert await ask(dsn, "SELECT count(*) FROM all_executions") == before + count
        assert await ask(dsn, "SELECT count(DISTINCT execution_id) FROM all_executions") == before + count
