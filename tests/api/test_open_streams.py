"""Streams and long polls: bounded by token and process, released with their client, ended with their credential."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from mainspring.api import open_streams
from mainspring.api.auth import issue_token
from mainspring.api.open_streams import WAITS_PER_STREAM, Kind
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.intake import jobs
from mainspring.store import browser_sessions, tokens
from mainspring.store.db import Database
from tests.conftest import Cluster, started
from tests.support.api_processes import api_processes
from tests.support.pages import NAVIGATION, open_page, sign_in

pytestmark = pytest.mark.anyio

PER_TOKEN = 3
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
async def narrow(database_url: str) -> AsyncIterator[Cluster]:
    async with started(database_url, streams_per_token=PER_TOKEN, roles=("api",)) as cluster:
        yield cluster


@pytest.fixture
async def execution_id(narrow: Cluster) -> str:
    """An execution that nobody executes."""
    async with narrow.client() as client:
        with contextlib.suppress(Exception):
            await jobs.create(narrow.database, JobSpec(name="waits", task=NoopTask()), tenant=1, by="test")
        return str((await client.trigger("waits")).execution_id)


def http_of(url: str, token: str, **headers: str) -> httpx2.AsyncClient:
    given = {"Authorization": f"Bearer {token}", **headers}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx2.AsyncClient(base_url=url, headers=given, trust_env=False, timeout=PATIENCE_S, limits=limits)


async def until_open(cluster: Cluster, kind: Kind, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while cluster.context.streams.count(kind) != count:
            await asyncio.sleep(0)


async def until_ended(response: httpx2.Response) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for _ in response.aiter_raw():
            pass


@pytest.mark.parametrize("what", ["stream", "follow", "page"])
async def test_streams_of_a_token_are_bounded_and_released(narrow: Cluster, execution_id: str, what: str) -> None:
    path = {
        "stream": "/api/v1/stream",
        "follow": f"/api/v1/executions/{execution_id}/logs?follow=true",
        "page": "/ui/stream?view=workers",
    }[what]
    async with narrow.database.connection() as connection:
        other = await issue_token(connection, tenant=1, name="other", scopes=("read",))
    async with http_of(narrow.url, narrow.token) as http, contextlib.AsyncExitStack() as stack:
        for _ in range(PER_TOKEN):
            response = await stack.enter_async_context(http.stream("GET", path))
            assert response.status_code == 200
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
        refused = await stack.enter_async_context(http.stream("GET", path))
        assert refused.status_code == 429
        await refused.aread()
        assert refused.json()["code"] == "too_many_streams"
        assert int(refused.headers["retry-after"]) >= 1 and f"{PER_TOKEN} live streams" in refused.json()["detail"]
        async with http_of(narrow.url, other) as calm, calm.stream("GET", path) as response:
            assert response.status_code == 200, "another token has its own"
        assert (await http.get("/api/v1/jobs")).status_code == 200
        await until_open(narrow, "stream", PER_TOKEN)
    await until_open(narrow, "stream", 0)
    async with http_of(narrow.url, narrow.token) as http, http.stream("GET", path) as response:
        assert response.status_code == 200


async def test_long_polls_of_a_token_are_bounded_and_released(narrow: Cluster, execution_id: str) -> None:
    path = f"/api/v1/executions/{execution_id}?wait=60s"
    async with http_of(narrow.url, narrow.token) as http:
        waiting = [asyncio.create_task(http.get(path)) for _ in range(PER_TOKEN * WAITS_PER_STREAM)]
        await until_open(narrow, "wait", len(waiting))
        refused = await http.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        for task in waiting:
            task.cancel()
        await until_open(narrow, "wait", 0)
        assert (await http.get(path.replace("60s", "1ms"))).status_code == 200


async def test_a_process_has_a_bound_too(narrow: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_streams, "STREAMS_PER_PROCESS", PER_TOKEN)
    async with contextlib.AsyncExitStack() as stack:
        for n in range(PER_TOKEN + 1):
            async with narrow.database.connection() as connection:
                token = await issue_token(connection, tenant=1, name=f"one of many {n}", scopes=("read",))
            http = await stack.enter_async_context(http_of(narrow.url, token))
            response = await stack.enter_async_context(http.stream("GET", "/api/v1/stream"))
            assert response.status_code == (200 if n < PER_TOKEN else 429)
    await until_open(narrow, "stream", 0)


async def revoke(database: Database, name: str) -> UUID:
    async with database.connection() as connection:
        (line,) = [t for t in await tokens.list_tokens(connection, tenant=1, limit=500) if t.name == name]
        await tokens.revoke_token(connection, tenant=1, token_id=line.token_id)
    return line.token_id


async def nothing_ended(*_: object, **__: object) -> list[UUID]:
    return []


@pytest.mark.parametrize("by", ["bus", "check"])
async def test_a_revoked_token_ends_its_streams_and_long_polls(
    narrow: Cluster, execution_id: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with narrow.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name=f"revoked {by}", scopes=("read",))
    paths = ("/api/v1/stream", f"/api/v1/executions/{execution_id}/logs?follow=true", "/ui/stream?view=now")
    if by == "bus":
        monkeypatch.setattr(browser_sessions, "ended_credentials", nothing_ended)
    async with http_of(narrow.url, token) as http, contextlib.AsyncExitStack() as stack:
        responses = [await stack.enter_async_context(http.stream("GET", path)) for path in paths]
        waiting = asyncio.create_task(http.get(f"/api/v1/executions/{execution_id}?wait=60s"))
        await until_open(narrow, "wait", 1)
        token_id = await revoke(narrow.database, f"revoked {by}")
        if by == "bus":
            narrow.context.streams.announce_end(token_id)
        for response in responses:
            await until_ended(response)
        assert (await waiting).status_code == 401
        assert (await http.get("/api/v1/jobs")).status_code == 401
    await until_open(narrow, "stream", 0)


async def test_signing_out_ends_the_streams_of_that_browser_only(narrow: Cluster) -> None:
    async with (
        httpx2.AsyncClient(base_url=narrow.url, headers=NAVIGATION, timeout=PATIENCE_S) as one,
        httpx2.AsyncClient(base_url=narrow.url, headers=NAVIGATION, timeout=PATIENCE_S) as two,
    ):
        for browser in (one, two):
            await sign_in(browser, narrow.token)
        async with (
            one.stream("GET", "/ui/stream?view=now") as first,
            two.stream("GET", "/ui/stream?view=now") as second,
        ):
            assert first.status_code == second.status_code == 200
            page = await open_page(one, "/jobs")
            assert (await one.post("/logout", data={"csrf": page.csrf})).status_code == 303
            await until_ended(first)
            assert narrow.context.streams.count("stream") == 1
    await until_open(narrow, "stream", 0)


async def test_a_token_that_is_revoked_at_one_api_process_ends_at_all(
    narrow: Cluster, tmp_path: Path, database_url: str
) -> None:
    """The stream is at one process, and the page on which the token is revoked at another."""
    async with narrow.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="far away", scopes=("read",))
    async with api_processes(tmp_path, database_url, 1) as (url,), http_of(url, token) as http:
        async with http.stream("GET", "/api/v1/stream") as response:
            assert response.status_code == 200
            assert (await http.get("/api/v1/jobs")).status_code == 200, "it is remembered now"
            headers = {**NAVIGATION}
            async with httpx2.AsyncClient(base_url=narrow.url, headers=headers, timeout=PATIENCE_S) as admin:
                await sign_in(admin, narrow.token)
                page = await open_page(admin, "/settings")
                caller = await narrow.context.auth.by_token(token)
                path = f"/settings/tokens/{caller.token_id}/revoke"
                assert (await admin.post(path, data={"csrf": page.csrf})).status_code == 303
            await until_ended(response)
        assert (await http.get("/api/v1/jobs")).status_code == 401, "long before it would have been looked up again"


async def test_a_revoked_worker_token_ends_its_stream(narrow: Cluster) -> None:
    async with narrow.worker(name="revoked"):
        async with asyncio.timeout(PATIENCE_S):
            while narrow.context.streams.count("worker") != 1:
                await asyncio.sleep(0)
        narrow.context.streams.announce_end(await revoke(narrow.database, "test worker"))
        await until_open(narrow, "worker", 0)
