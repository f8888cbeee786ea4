"""Server-sent events of an open page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import httpx2

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.intake.executions import Submission
from tests.conftest import Cluster


@dataclass
class Told:
    """One event as a browser would hand it over."""

    event: str
    identity: str
    data: str


@asynccontextmanager
async def listening(browser: httpx2.AsyncClient, path: str) -> AsyncIterator[AsyncIterator[Told]]:
    async with asyncio.timeout(60), browser.stream("GET", path) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer)


async def _events(answer: httpx2.Response) -> AsyncIterator[Told]:
    fields: dict[str, list[str]] = {}
    async for line in answer.aiter_lines():
        if not line:
            if fields:
                yield Told("".join(fields.get("event", [])), "".join(fields.get("id", [])), "\n".join(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields.setdefault(name, []).append(value)


async def submit(cluster: Cluster, job_id: UUID) -> UUID:
    return await cluster.context.submitter.submit(Submission(TENANT, "test", job_id))


async def until(events: AsyncIterator[Told], words: str) -> Told:
    async for told in events:
        if words in told.data:
            return told
    raise AssertionError(f"the stream ended without {words!r}")
