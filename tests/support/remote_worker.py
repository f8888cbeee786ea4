"""A worker driven by the test message by message, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx2

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.execution import Outcome
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, read_answer
from tests.conftest import Cluster


class Remote:
    """One session, over real HTTP."""

    def __init__(self, link: ApiClient, http: httpx2.AsyncClient, session_id: UUID, key: str = "") -> None:
        self.link = link
        self.session_id = session_id
        self.key = key  # empty: registered as older workers do
        self._http = http

    async def poll(self, free: int = 1, wait_s: float = 10.0, resources: dict[str, int] | None = None) -> wire.Polled:
        return await self.link.poll(
            wire.Poll(session_id=self.session_id, free=free, wait_s=wait_s, resources=resources)
        )

    async def ids(self, free: int = 1, wait_s: float = 10.0, resources: dict[str, int] | None = None) -> list[UUID]:
        """Return the ids of the executions that a poll brings."""
        return [given.execution_id for given in (await self.poll(free, wait_s, resources)).executions]

    async def tell(self, given: wire.Assignment, outcome: Outcome = "succeeded", *output: bytes) -> wire.Settled:
        """Report the end of an attempt, with its output."""
        result = wire.Result(
            execution_id=given.execution_id, attempt=given.attempt, outcome=outcome, duration_ms=1, exit_code=0
        )
        chunks = [
            wire.Output(execution_id=given.execution_id, attempt=given.attempt, seq=seq, stream="stdout", data=data)
            for seq, data in enumerate(output)
        ]
        return await self.link.results(wire.Results(session_id=self.session_id, results=[result], output=chunks))

    async def beat(
        self, *running: UUID, draining: bool = False, progress: list[wire.ProgressReport] | None = None
    ) -> wire.Beat:
        body = wire.Heartbeat(
            session_id=self.session_id, running=list(running), draining=draining, progress=progress or []
        )
        answer = await self._http.post("/api/v1/worker/heartbeat", content=encode(body))
        return read_answer(answer.status_code, answer.content, wire.Beat)

    async def goodbye(self, *, lost: bool = False) -> None:
        await self.link.end_session(self.session_id, lost=lost)


@asynccontextmanager
async def remote(
    cluster: Cluster, *, name: str = "remote", queue: str = "short", token: str | None = None, **given: Any
) -> AsyncIterator[Remote]:
    address = ApiAddress(cluster.url, token or cluster.worker_token)
    link = ApiClient(address)
    has: dict[str, Any] = {"slots": 100, "queues": [queue], "kinds": ["noop", "shell"], **given}
    register = wire.Register(name=name, host="here", version="1", **has)
    async with httpx2.AsyncClient(base_url=cluster.url, headers=address.headers, trust_env=False) as http:
        try:
            registered = await link.register(register)
            if registered.key:
                http.headers[wire.SESSION_KEY] = registered.key
            found = Remote(link, http, registered.session_id, registered.key)
            try:
                yield found
            finally:
                await found.goodbye()
        finally:
            await link.close()
