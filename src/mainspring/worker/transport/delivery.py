"""Results and output on their way to the api: in batches, kept until they are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from uuid import UUID

import msgspec
import structlog

from mainspring import wire
from mainspring.service import Loops
from mainspring.worker.executors import Work
from mainspring.worker.transport.api_link import ApiAway, Link, Refused, SessionEnded

log = structlog.get_logger()

BATCH = 1000
BATCH_BYTES = 600_000
GATHER_S, LEAST_GATHER_S, MOST_GATHER_S = 5e-6, 1e-3, 0.02
"""For each attempt in hand a result waits so long for company: where thousands run, a few milliseconds are nothing to
them, and settling them together costs half."""
STREAM_S = 0.3
RETRY_S = 1.0
CHECKPOINTS = 100
"""In one request: each may have 64,000 bytes."""
REFUSED = "the api refused the result"


class Delivery:
    """Sends results as soon as the last batch is accepted, and the output of running attempts now and then."""

    def __init__(
        self, link: Link, session_id: UUID, *, delivered: Callable[[list[UUID]], None], takes: Collection[str] = ()
    ) -> None:
        self._link = link
        self._session_id = session_id
        self._delivered = delivered
        self._takes = takes
        self._no_retry: set[UUID] = set()
        self._results: list[tuple[wire.Result, list[wire.Output]]] = []
        self._checkpoints: list[
            wire.CheckpointReport
        ] = []  # of attempts that have ended, to arrive before their results
        self._live: dict[UUID, Work] = {}
        self._some = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        # Output on its way must arrive before the result that ends its attempt: after that nobody takes it.
        self._sending = asyncio.Lock()
        self._loops = Loops("delivery")

    def start(self) -> None:
        self._loops.forever("results", self._send_results)
        self._loops.forever("output", self._send_output)

    def begin(self, work: Work) -> None:
        self._live[work.assignment.execution_id] = work

    def end(self, work: Work, result: wire.Result, *, retry: bool = True) -> None:
        self._live.pop(work.assignment.execution_id, None)
        if not retry and "no_retry" in self._takes:
            self._no_retry.add(work.assignment.execution_id)
        if (
            work.checkpoint is not None
            and result.outcome != "succeeded"
            and (last := work.checkpoint.take()) is not None
        ):
            self._checkpoints.append(_report(work, last))
        self._results.append((result, work.take_output()))
        self._empty.clear()
        self._some.set()

    async def flushed(self, timeout_s: float) -> bool:
        """Whether everything was accepted in time."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        await self._loops.stop()

    async def _send_results(self) -> None:
        await self._some.wait()
        if (company_s := min(MOST_GATHER_S, len(self._live) * GATHER_S)) > LEAST_GATHER_S:
            await asyncio.sleep(company_s)
        async with self._sending:
            if self._checkpoints:
                await self._save_checkpoints(self._checkpoints)
                self._checkpoints = []
            await self._send_batch()

    async def _send_batch(self) -> None:
        batch, size = 0, 0
        for result, output in self._results[:BATCH]:
            size += sum(len(chunk.data) for chunk in output) if output else 0
            size += len(result.result) if isinstance(result.result, msgspec.Raw) else 0
            if batch and size > BATCH_BYTES:
                break
            batch += 1
        sending = self._results[:batch]
        output = [chunk for _, chunks in sending for chunk in chunks]
        while sum(len(chunk.data) for chunk in output) > BATCH_BYTES:
            # One attempt with very much output: its head goes ahead alone.
            head, output = output[:4], output[4:]
            await self._deliver([], head)
        await self._deliver([result for result, _ in sending], output)
        del self._results[:batch]
        if self._no_retry:
            self._no_retry.difference_update(result.execution_id for result, _ in sending)
        self._delivered([result.execution_id for result, _ in sending])
        if not self._results:
            self._some.clear()
            self._empty.set()

    async def _send_output(self) -> None:
        await asyncio.sleep(STREAM_S)
        async with self._sending:
            pending = [chunk for work in list(self._live.values()) for chunk in work.take_output()]
            while pending:
                batch, pending = pending[:4], pending[4:]
                await self._deliver([], batch)
            said = [
                _report(work, value)
                for work in list(self._live.values())
                if work.checkpoint is not None and (value := work.checkpoint.take()) is not None
            ]
            if said:
                await self._save_checkpoints(said)

    async def _save_checkpoints(self, said: list[wire.CheckpointReport]) -> None:
        """Until accepted, like results: whoever goes on must not begin further back than they were told."""
        if "checkpoints" not in self._takes:
            return
        for at in range(0, len(said), CHECKPOINTS):
            body = wire.SaveCheckpoints(session_id=self._session_id, checkpoints=said[at : at + CHECKPOINTS])
            while True:
                try:
                    await self._link.save_checkpoints(body)
                except ApiAway as error:
                    log.warning("checkpoints wait for the api", error=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                except (SessionEnded, Refused) as error:
                    log.error("checkpoints were refused", error=str(error))
                break

    async def _deliver(self, results: list[wire.Result], output: list[wire.Output]) -> None:
        """Until accepted: the api may be away for long, and what was done must not be forgotten."""
        if not results and not output:
            return
        no_retry = [r.execution_id for r in results if r.execution_id in self._no_retry] if self._no_retry else []
        body = wire.Results(session_id=self._session_id, results=results, output=output, no_retry=no_retry)
        while True:
            try:
                settled = await self._link.results(body)
            except ApiAway as error:
                log.warning("results wait for the api", results=len(results), error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            except SessionEnded as error:
                log.error("the session has ended; its results are nobody's", results=len(results), error=str(error))
                return
            except Refused as error:
                await self._deliver_refused(results, output, error)
                return
            if settled.stale:
                log.warning("results came too late", stale=len(settled.stale))
            return

    async def _deliver_refused(self, results: list[wire.Result], output: list[wire.Output], error: Refused) -> None:
        """One bad result must not take the others along, nor come back for ever as an attempt nobody ended."""
        log.error("results were refused", results=len(results), error=str(error))
        if len(results) > 1:
            for result in results:
                own = [chunk for chunk in output if chunk.execution_id == result.execution_id]
                await self._deliver([result], own)
        elif results and not (results[0].error or "").startswith(REFUSED):
            plain = wire.Result(
                execution_id=results[0].execution_id,
                attempt=results[0].attempt,
                outcome="failed",
                duration_ms=results[0].duration_ms,
                exit_code=results[0].exit_code,
                error=f"{REFUSED}: {error}",
            )
            await self._deliver([plain], [])


def _report(work: Work, value: msgspec.Raw) -> wire.CheckpointReport:
    return wire.CheckpointReport(
        execution_id=work.assignment.execution_id, attempt=work.assignment.attempt, value=value
    )
