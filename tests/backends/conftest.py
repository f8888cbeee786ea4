"""A Redis server for each test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.engine_servers import RedisServer


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def locked_redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """One with the password `correct`."""
    server = RedisServer(tmp_path / "locked")
    server.password = "correct"
    await server.start()
    yield server
    server.kill()
