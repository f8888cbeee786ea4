"""Real servers. Tests that leave the cluster usable share one; the others get a copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.embedded.server import EmbeddedServer
from tests.support.postgres_processes import Serve


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose cluster was started and stopped before; the same for every test."""
    directory = tmp_path_factory.mktemp("made") / "m"

    async def make() -> None:
        server = EmbeddedServer(directory)
        await server.start()
        await server.stop()

    asyncio.run(make())
    return directory


@pytest.fixture
def copied(directory: Path, tmp_path: Path) -> Path:
    """A copy of `directory` that a test may spoil."""
    return Path(shutil.copytree(directory, tmp_path / "m"))


@pytest.fixture
async def serve(anyio_backend: object, tmp_path: Path) -> AsyncIterator[Serve]:
    """Makes servers; after the test stops them and removes their data, which is large."""
    servers: list[EmbeddedServer] = []

    def make(directory: Path, port: int | None = None, **settings: str) -> EmbeddedServer:
        servers.append(EmbeddedServer(directory, port=port, settings=settings))
        return servers[-1]

    yield make
    for server in servers:
        await server.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)
