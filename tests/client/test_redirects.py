"""A redirect of a server takes no token anywhere: no client of the API follows one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient, Client
from mainspring.domain.errors import MainspringError
from mainspring.worker.transport.api_client import ApiAddress, ApiClient
from tests.support.http_receiver import Received, receiving, reply

pytestmark = pytest.mark.anyio

TOKEN = "ms_mine"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiving(lambda _: reply()) as elsewhere:

        def away(got: Received) -> bytes:
            assert got.headers["authorization"] == f"Bearer {TOKEN}"
            return reply(f"{status} Moved", location=elsewhere.url("/api/v1/jobs"))

        async with receiving(away) as server:
            async with AsyncClient(server.url(""), TOKEN) as client:
                with pytest.raises(MainspringError):
                    await client.jobs()
                with pytest.raises(MainspringError):
                    await client.create_job({"name": "x", "task": {"kind": "noop"}})
                with pytest.raises(MainspringError):
                    async for _ in client.feed():
                        pass
            worker = ApiClient(ApiAddress(server.url(""), TOKEN))
            with suppress(MainspringError):
                await worker.end_session(uuid4())
            with suppress(MainspringError):
                await worker.results(wire.Results(session_id=uuid4(), results=[]))
            await worker.close()
            assert len(server.got) >= 5
        assert elsewhere.connections == 0


async def test_nor_by_the_blocking_client() -> None:
    async with receiving(lambda _: reply()) as elsewhere:
        async with receiving(lambda _: reply("307 Moved", location=elsewhere.url("/x"))) as server:

            def ask() -> None:
                with Client(server.url(""), TOKEN) as client, pytest.raises(MainspringError):
                    client.jobs()

            await asyncio.to_thread(ask)
        assert server.got and elsewhere.connections == 0
