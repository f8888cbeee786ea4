"""Real PostgreSQL for every test that needs one: a server per test process, a migrated template, a clone per module."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.api.auth import issue_token
from mainspring.api.context import Context
from mainspring.cli.serve import DEFAULT_TENANT, Server
from mainspring.client import AsyncClient
from mainspring.config import ServeConfig
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.store.migrate import migrate
from mainspring.testing.clock import VirtualClock
from mainspring.testing.postgres import SETTINGS
from mainspring.worker.executors import load_executors
from mainspring.worker.service import Worker, WorkerConfig
from mainspring.worker.transport.api_client import ApiAddress
from tests.support import seeds
from tests.support.database_roles import granted, tenant_url
from tests.support.engine_servers import KafkaServer
from tests.support.secret_keys import key_file

pytest_plugins = ("tools.requirement_plugin", "tools.fault_plugin", "tools.slow_first", "tools.hang_report")

seeds.load_profile()


def pytest_report_header() -> str:
    return f"random tests: seed {seeds.SEED}" + ("" if seeds.IS_FIXED else f" (repeat with TEST_SEED={seeds.SEED})")


# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start as well.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TEMPLATE = "template_mainspring"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests get the event loop that production uses."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[EmbeddedServer]:
    folder: Path = tmp_path_factory.mktemp("pg")
    server = EmbeddedServer(folder, settings=SETTINGS)
    await server.start()
    connection = await asyncpg.connect(server.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {TEMPLATE} OWNER mainspring")
    await connection.close()
    await migrate(server.dsn_for(TEMPLATE))
    await granted(server, TEMPLATE)
    yield server
    await server.stop()


@pytest.fixture(scope="session")
async def kafka(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[KafkaServer]:
    """A Kafka broker for all tests of this process. Each has topics of its own, and starts again what it kills."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka") / "broker")
    await server.start()
    yield server
    server.kill()


async def clone(server: EmbeddedServer) -> str:
    """The DSN of a fresh database with our schema."""
    name = f"test_{next(_numbers)}"
    connection = await asyncpg.connect(server.superuser_dsn("postgres"))
    # Copied as files: a quarter of the CPU that writing each page to the WAL takes. Measured: 43 instead of 164 ms.
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} OWNER mainspring STRATEGY FILE_COPY")
    await connection.close()
    return server.dsn_for(name)


@pytest.fixture(scope="module")
async def database_url(postgres: EmbeddedServer) -> str:
    return await clone(postgres)


@pytest.fixture(scope="module")
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database(database_url, size=10) as database:
        yield database


@pytest.fixture
async def fresh(postgres: EmbeddedServer) -> AsyncIterator[Database]:
    """A database of its own for one test."""
    async with Database(await clone(postgres), size=10) as database:
        yield database


@pytest.fixture
async def virtual(fresh: Database) -> VirtualClock:
    """The test's own database, whose time only moves when the test says so."""
    clock = VirtualClock(fresh)
    await clock.install()
    return clock


@dataclass
class Cluster:
    """A server of this process on a loopback port, with an admin token."""

    server: Server
    database: Database
    context: Context
    url: str
    token: str
    worker_token: str

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token)

    @asynccontextmanager
    async def worker(self, *, slots: int = 8, name: str = "test", **more: Any) -> AsyncIterator[Worker]:
        """A worker in this process, drained at the end."""
        config = WorkerConfig(ApiAddress(self.url, self.worker_token), slots=slots, name=name, drain_s=5.0, **more)
        worker = Worker(config, load_executors())
        await worker.start()
        await worker.ready()
        try:
            yield worker
        finally:
            await worker.drain()
            await worker.stop()


@asynccontextmanager
async def started(url: str, **config: Any) -> AsyncIterator[Cluster]:
    """A server whose requests use the role of tenants; its engine connects as the owner, as tests do."""
    own = {"database_url": url, "tenant_database_url": tenant_url(url)}
    server = Server(ServeConfig(**{**own, "port": 0, "secret_key_file": str(key_file()), **config}))
    await server.start()
    assert server.http is not None and server.context is not None
    async with server.database.connection() as connection:
        token = await issue_token(connection, tenant=DEFAULT_TENANT, name="test admin", scopes=("admin",))
        worker = await issue_token(
            connection, tenant=DEFAULT_TENANT, name="test worker", scopes=("worker",), grants=EVERYTHING
        )
    try:
        yield Cluster(server, server.database, server.context, f"http://127.0.0.1:{server.http.port}", token, worker)
    finally:
        await server.stop()


@pytest.fixture(scope="module")
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    """api and scheduler on the module's database, without a worker."""
    async with started(database_url) as cluster:
        yield cluster
