"""Reads the checkpoints that further attempts continue from."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from uuid import UUID

import msgspec
import structlog

from mainspring import wire
from mainspring.service import Loops
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.executors import Work
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded

log = structlog.get_logger()

RETRY_S = 0.5


class CheckpointReader:
    """Reads the checkpoints of all attempts that begin in the same turn of the event loop with one request."""

    def __init__(self, api: ApiClient, session_id: UUID, *, features: Collection[str], tasks: Loops) -> None:
        self._api = api
        self._session_id = session_id
        self._supported = "checkpoints" in features
        self._tasks = tasks
        self._batch: list[Work] = []
        self._read: asyncio.Future[None] | None = None

    def load(self, work: Work) -> asyncio.Future[None]:
        """Return a future that is done once `work.checkpoint` is what the last attempt saved, if anything."""
        if self._read is None:
            loop = asyncio.get_running_loop()
            self._read = loop.create_future()
            loop.call_soon(self._flush)
        self._batch.append(work)
        return self._read

    def _flush(self) -> None:
        assert self._read is not None
        batch, read = self._batch, self._read
        self._batch, self._read = [], None
        self._tasks.spawn(self._load_all(batch, read), "read checkpoints")

    async def _load_all(self, works: list[Work], read: asyncio.Future[None]) -> None:
        try:
            if self._supported:
                await self._request(works)
        finally:
            read.set_result(None)

    async def _request(self, works: list[Work]) -> None:
        given = [work.assignment for work in works]
        body = wire.ReadCheckpoints(session_id=self._session_id, executions=[each.execution_id for each in given])
        if all(each.credential for each in given):
            body = msgspec.structs.replace(
                body, attempts=[each.attempt for each in given], credentials=[each.credential for each in given]
            )
        while any(work.stop_outcome is None for work in works):
            try:
                found = (await self._api.read_checkpoints(body)).checkpoints
            except ApiUnavailable as error:
                log.warning("checkpoints.read_failed", attempts=len(works), error=str(error), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                continue
            except (SessionEnded, Refused) as error:
                log.error("checkpoints.read_refused", attempts=len(works), error=str(error))
                return
            for work in works:
                if work.assignment.execution_id in found:
                    work.checkpoint = Checkpoint(found[work.assignment.execution_id])
            return
