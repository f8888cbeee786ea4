"""A durable PostgreSQL that a test may stop, restart and kill, and a fresh database on it for every test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from tests.support.fleet import load

TEMPLATE = "template_faults"


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    # A short path: the address of the server must be the same after a restart, and a long one would be moved.
    with tempfile.TemporaryDirectory(prefix="ms-") as name:
        yield Path(name)


@pytest.fixture(scope="package")
async def durable(folder: Path, anyio_backend: object) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(folder, settings={"shared_buffers": "128MB"})
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def loaded(migrated: str) -> str:
    """The address of a database with some four hundred jobs that fire every second, two or three."""
    await load(migrated)
    return migrated


@pytest.fixture
async def lightly_loaded(migrated: str) -> str:
    """The address of a database with as few such jobs as one worker can run beside other work."""
    await load(migrated, each=16)
    return migrated


@pytest.fixture(scope="package")
async def template(durable: EmbeddedServer) -> str:
    """The name of a database with our schema, from which others are copied."""
    connection = await asyncpg.connect(durable.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {TEMPLATE} OWNER mainspring")
    await connection.close()
    await migrate(durable.dsn_for(TEMPLATE))
    return TEMPLATE


@pytest.fixture
async def migrated(durable: EmbeddedServer, template: str, request: pytest.FixtureRequest) -> str:
    """The address of a database without jobs."""
    name = f"f{abs(hash(request.node.nodeid)):x}"
    connection = await asyncpg.connect(durable.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER mainspring STRATEGY FILE_COPY")
    await connection.close()
    return durable.dsn_for(name)
