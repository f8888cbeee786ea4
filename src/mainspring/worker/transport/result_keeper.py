"""Keeps results in a result stream while the api is unavailable, so that they survive the worker as well.

The worker still sends them to the api when it is back: what arrives second changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.domain.errors import Unavailable
from mainspring.ports import ResultStream, SignedRecord
from mainspring.wire.result_stream import record_of, sign

log = structlog.get_logger()

BATCH_RESULTS = 500
BATCH_BYTES = 1_000_000
RETRY_S = 1.0

_Kept = tuple[wire.Result | None, Sequence[wire.Output]]


class ResultKeeper:
    """The results of one session that the api has not accepted. `kept` is set while all of them are in the stream."""

    def __init__(self, stream: ResultStream, session_id: UUID, session_key: str) -> None:
        self._stream = stream
        self._session_id = session_id
        self._key_digest = hashlib.sha256(session_key.encode()).digest()
        self._api_failed = asyncio.Event()
        self._changed = asyncio.Event()
        self.kept = asyncio.Event()
        self._missing: list[_Kept] = []  # neither accepted by the api nor in the stream
        self._output: Sequence[wire.Output] = ()  # the latest that was added without a result
        self._jobs: dict[UUID, UUID] = {}
        self._no_retry: set[UUID] = set()

    def add(self, result: wire.Result, output: Sequence[wire.Output], *, job_id: UUID, retry: bool) -> None:
        self._missing.append((result, output))
        self._jobs[result.execution_id] = job_id
        if not retry:
            self._no_retry.add(result.execution_id)
        self.kept.clear()
        self._changed.set()

    def api_failed(self, output: Sequence[wire.Output]) -> None:
        """Begin to keep results: the api is unavailable. `output` could not be sent ahead of them."""
        if output and output is not self._output:
            self._missing.insert(0, (None, output))
            self._output = output
        self._api_failed.set()
        self._changed.set()

    def accepted(self, results: Sequence[wire.Result]) -> None:
        """The api has these results: they need not be kept, and neither do later ones until it fails again."""
        self._api_failed.clear()
        self.kept.clear()
        gone = {(result.execution_id, result.attempt) for result in results}
        self._missing = [k for k in self._missing if k[0] and (k[0].execution_id, k[0].attempt) not in gone]
        for result in results:
            self._jobs.pop(result.execution_id, None)
            self._no_retry.discard(result.execution_id)

    async def step(self) -> None:
        """Append what is missing, in batches, while the api is unavailable."""
        await self._api_failed.wait()
        batch = self._next_batch()
        if batch:
            results = [result for result, _ in batch if result is not None]
            output = [chunk for _, chunks in batch for chunk in chunks]
            value = record_of(self._session_id, results, output, no_retry=self._no_retry, jobs=self._jobs)
            record = SignedRecord(self._session_id, value, sign(value, self._key_digest))
            try:
                await self._stream.append(record)
            except Unavailable as error:
                log.warning("results.not_kept", results=len(results), error=error.message, retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                return
            log.info("results.kept", results=len(results))
            done = set(map(id, batch))
            self._missing = [entry for entry in self._missing if id(entry) not in done]
        if not self._missing and self._api_failed.is_set():
            self.kept.set()
            self._changed.clear()
            await self._changed.wait()

    def _next_batch(self) -> list[_Kept]:
        batch: list[_Kept] = []
        size = 0
        for entry in self._missing[:BATCH_RESULTS]:
            result, chunks = entry
            size += sum(len(chunk.data) for chunk in chunks) + len(str(result.result if result else ""))
            if batch and size > BATCH_BYTES:
                break
            batch.append(entry)
        return batch
