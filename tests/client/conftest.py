from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mainspring.client import AsyncClient, Server
from tests.support.scripted_server import Scripted, serving


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as script:
        yield script


@pytest.fixture
async def client(server: Scripted) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server=Server(server.url, "secret", "--url")) as client:
        yield client
