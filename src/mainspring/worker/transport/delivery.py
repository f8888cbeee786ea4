"""Delivers results, output and checkpoints to the api: in batches, retried until accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import msgspec
import structlog

from mainspring import wire
from mainspring.service import Loops
from mainspring.worker.executors import Work
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable, Refused, SessionEnded
from mainspring.worker.transport.result_keeper import ResultKeeper

log = structlog.get_logger()

BATCH_RESULTS = 1000
BATCHES_AT_ONCE = 2
"""Two drained 48,600 to 55,300 no-ops per second and one 46,500 to 49,300, four rounds each in alternation."""
BATCH_BYTES = 600_000
GATHER_PER_ATTEMPT_S, LEAST_GATHER_S, MOST_GATHER_S = 5e-6, 1e-3, 0.02
"""How long a result waits for others, per running attempt. Where thousands run, a few milliseconds do not matter, and
settling their results together costs half."""
OUTPUT_S = 0.3
RETRY_S = 1.0
BATCH_CHECKPOINTS = 100
"""Each may have 64,000 bytes."""
BATCH_CHUNKS = 4
REFUSED = "the api refused the result"

_SavedCheckpoint = tuple[wire.CheckpointReport, str]
"""A checkpoint, and the credential of its attempt."""


class ResultDelivery:
    """Sends results as soon as the last batch is accepted, and the output of running attempts regularly.

    Output and checkpoints of an attempt are sent before its result: the api takes none afterwards.
    """

    def __init__(
        self,
        api: ApiClient,
        session_id: UUID,
        *,
        delivered: Callable[[list[wire.Result]], None],
        features: Collection[str] = (),
        keeper: ResultKeeper | None = None,
    ) -> None:
        self._keeper = keeper
        self._api = api
        self._session_id = session_id
        self._delivered = delivered
        self._features = features
        self._no_retry: set[UUID] = set()
        self._results: list[tuple[wire.Result, list[wire.Output]]] = []
        self._checkpoints: list[_SavedCheckpoint] = []  # of attempts that have ended
        self._taken: list[wire.Output] = []  # output of running attempts that is being sent
        self._running: dict[UUID, Work] = {}
        self._pending = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.send: Callable[[wire.Results], Awaitable[wire.Settled]] = api.results
        self._sending = asyncio.Lock()  # keeps output ahead of the result that ends its attempt
        self._gathering = False
        self._loops = Loops("delivery")

    def start(self) -> None:
        self._loops.forever("results", self._send_results)
        self._loops.forever("output", self._send_output)
        if self._keeper is not None:
            self._loops.forever("keep", self._keeper.step)

    def begin(self, work: Work) -> None:
        """Send the output and checkpoints of an attempt while it runs."""
        self._running[work.assignment.execution_id] = work

    def end(self, work: Work, result: wire.Result, *, retry: bool = True) -> None:
        """Queue the result of an attempt, with the rest of its output and, unless it succeeded, its checkpoint."""
        self._running.pop(work.assignment.execution_id, None)
        if not retry and "no_retry" in self._features:
            self._no_retry.add(work.assignment.execution_id)
        last = work.checkpoint.take() if work.checkpoint is not None and result.outcome != "succeeded" else None
        if last is not None:
            self._checkpoints.append(_report(work, last))
        output = work.take_output()
        self._results.append((result, output))
        if self._keeper is not None:
            self._keeper.add(result, output, job_id=work.assignment.job_id, retry=retry)
        self._empty.clear()
        self._pending.set()

    def disclaim(self, attempt: wire.Preempt) -> None:
        """Report an attempt that has not arrived, and will not begin here."""
        self._results.append((wire.Result(attempt.execution_id, attempt.attempt, "preempted", 0), []))
        self._empty.clear()
        self._pending.set()

    def is_sending(self) -> bool:
        """Whether new results have to wait for earlier ones."""
        return self._gathering or self._sending.locked()

    async def flushed(self, timeout_s: float) -> bool:
        """Return whether every result was accepted in time, or is kept in the result stream."""
        waits = [asyncio.create_task(self._empty.wait())]
        if self._keeper is not None:
            waits.append(asyncio.create_task(self._keeper.kept.wait()))
        done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return bool(done)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _send_results(self) -> None:
        await self._pending.wait()
        if (gather_s := min(MOST_GATHER_S, len(self._running) * GATHER_PER_ATTEMPT_S)) > LEAST_GATHER_S:
            self._gathering = True
            await asyncio.sleep(gather_s)
            self._gathering = False
        async with self._sending:
            if self._checkpoints:
                await self._save_checkpoints(self._checkpoints)
                self._checkpoints = []
            await self._send_batch()

    async def _send_batch(self) -> None:
        batches = [self._results[: self._fitting(0)]]
        # While one batch is settled, the api reads the next: only full ones, so that batches still grow under load.
        while len(batches) < BATCHES_AT_ONCE and len(self._results) >= BATCH_RESULTS * (len(batches) + 1):
            start = sum(map(len, batches))
            batches.append(self._results[start : start + self._fitting(start)])
        await asyncio.gather(*map(self._deliver_batch, batches))
        sent = [result for batch in batches for result, _ in batch]
        del self._results[: len(sent)]
        if self._no_retry:
            self._no_retry.difference_update(result.execution_id for result in sent)
        self._delivered(sent)
        if self._keeper is not None:
            self._keeper.accepted(sent)
        if not self._results:
            self._pending.clear()
            self._empty.set()

    def _fitting(self, start: int) -> int:
        """How many results from this one on fit into a request."""
        count, size = 0, 0
        for result, output in self._results[start : start + BATCH_RESULTS]:
            size += sum(len(chunk.data) for chunk in output) if output else 0
            size += len(result.result) if isinstance(result.result, msgspec.Raw) else 0
            if count and size > BATCH_BYTES:
                break
            count += 1
        return count

    async def _deliver_batch(self, batch: list[tuple[wire.Result, list[wire.Output]]]) -> None:
        output = [chunk for _, chunks in batch for chunk in chunks]
        while sum(len(chunk.data) for chunk in output) > BATCH_BYTES:
            # One attempt with more output than fits into a request: its first chunks are sent alone.
            first, output = output[:BATCH_CHUNKS], output[BATCH_CHUNKS:]
            await self._deliver([], first)
        await self._deliver([result for result, _ in batch], output)

    async def _send_output(self) -> None:
        await asyncio.sleep(OUTPUT_S)
        async with self._sending:
            chunks = [chunk for work in list(self._running.values()) for chunk in work.take_output()]
            while chunks:
                self._taken = chunks
                batch, chunks = chunks[:BATCH_CHUNKS], chunks[BATCH_CHUNKS:]
                await self._deliver([], batch)
            self._taken = []
            checkpoints = [
                _report(work, value)
                for work in list(self._running.values())
                if work.checkpoint is not None and (value := work.checkpoint.take()) is not None
            ]
            if checkpoints:
                await self._save_checkpoints(checkpoints)

    async def _save_checkpoints(self, reports: list[_SavedCheckpoint]) -> None:
        """Send checkpoints until accepted, so that no attempt continues from further back than was saved."""
        if "checkpoints" not in self._features:
            return
        for at in range(0, len(reports), BATCH_CHECKPOINTS):
            batch = reports[at : at + BATCH_CHECKPOINTS]
            credentials = [credential for _, credential in batch]
            body = wire.SaveCheckpoints(
                session_id=self._session_id,
                checkpoints=[report for report, _ in batch],
                credentials=credentials if all(credentials) else [],
            )
            while True:
                try:
                    await self._api.save_checkpoints(body)
                except ApiUnavailable as error:
                    log.warning("checkpoints.save_failed", error=str(error), retry_s=RETRY_S)
                    await asyncio.sleep(RETRY_S)
                    continue
                except (SessionEnded, Refused) as error:
                    log.error("checkpoints.save_refused", error=str(error))
                break

    async def _deliver(self, results: list[wire.Result], output: list[wire.Output]) -> None:
        """Send until accepted, even if the api is down for long: results must not be lost."""
        if not results and not output:
            return
        no_retry = [r.execution_id for r in results if r.execution_id in self._no_retry] if self._no_retry else []
        body = wire.Results(session_id=self._session_id, results=results, output=output, no_retry=no_retry)
        while True:
            try:
                settled = await self.send(body)
            except ApiUnavailable as error:
                log.warning("results.failed", results=len(results), error=str(error), retry_s=RETRY_S)
                if self._keeper is not None:
                    self._keeper.api_failed(self._taken)
                await asyncio.sleep(RETRY_S)
                continue
            except SessionEnded as error:
                log.error("results.discarded", reason="session ended", results=len(results), error=str(error))
                return
            except Refused as error:
                await self._deliver_refused(results, output, error)
                return
            if settled.stale:
                log.warning("results.stale", stale=len(settled.stale))
            return

    async def _deliver_refused(self, results: list[wire.Result], output: list[wire.Output], error: Refused) -> None:
        """Send refused results one by one, and one that is refused alone as a failure.

        One bad result must neither take the others with it nor leave its attempt without an end.
        """
        log.error("results.refused", results=len(results), error=str(error))
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


def _report(work: Work, value: msgspec.Raw) -> _SavedCheckpoint:
    assignment = work.assignment
    if work.mask is not None:
        value = msgspec.Raw(msgspec.json.encode(work.mask.json(msgspec.json.decode(value))))
    report = wire.CheckpointReport(execution_id=assignment.execution_id, attempt=assignment.attempt, value=value)
    return report, assignment.credential
