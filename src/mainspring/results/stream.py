"""Results by way of a result stream: appended while the database is unavailable, settled when it is back.

Without a stream, and while the database answers, results are settled directly: that is faster by a round trip and
returns what was stale. A record in the stream is settled by the same statements, so it changes nothing if its attempt
was settled meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from uuid import UUID

import structlog

from mainspring import ports, wire
from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.domain.settlement import AttemptResult
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.service import Loops, Service
from mainspring.store import sessions
from mainspring.store.db import AWAY, Database
from mainspring.telemetry import metrics
from mainspring.wire.result_stream import StreamedResults, is_signed, read_record, record_of, sign

log = structlog.get_logger()

PATIENCE_S = 2.0
"""Results that are not settled within this time are appended to the stream, and their worker is free of them."""
MAX_DURATION_MS = 2**31 - 1
MAX_KEYS = 10_000


def attempt_results(
    session_id: UUID, results: Sequence[wire.Result], no_retry: Sequence[UUID] = ()
) -> list[AttemptResult]:
    """Return results of the worker protocol in the form that is settled."""
    final = frozenset(no_retry)
    return [
        AttemptResult(
            r.execution_id,
            r.attempt,
            session_id,
            r.outcome,
            min(r.duration_ms, MAX_DURATION_MS),
            r.exit_code,
            r.error,
            r.result,
            r.execution_id not in final,
        )
        for r in results
    ]


class ResultIntake(Service):
    """Takes what workers report, directly and from the stream, to the settler."""

    def __init__(self, database: Database, settler: Settler, stream: ports.ResultStream | None = None) -> None:
        self._database = database
        self._settler = settler
        self._stream = stream
        self._keys: dict[UUID, bytes] = {}
        self._loops = Loops("result intake")
        if stream is not None:
            settler.catch_up = stream.drained
            stream.settle_with(self._settle_records)

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        await self._loops.stop()

    async def accept(
        self, body: wire.Results | wire.ReportResults, *, session_id: UUID, key_digest: bytes | None
    ) -> set[UUID]:
        """Settle what a session reports and return what was stale; or append it to the stream, and return nothing."""
        report = Report(session_id, attempt_results(session_id, body.results, body.no_retry), body.output)
        if self._stream is None or key_digest is None:
            return await self._settler.settle(report)
        settling = self._loops.spawn(self._settler.settle(report), "settle")
        await asyncio.wait({settling}, timeout=PATIENCE_S)
        if settling.done() and not isinstance(settling.exception(), AWAY):
            return settling.result()
        try:
            await self._stream.append(self._record(body, session_id, key_digest))
        except Unavailable:
            return await settling
        metrics.STREAMED_RESULTS.labels("appended").inc(len(report.ended))
        settling.add_done_callback(_ignore)
        return set()

    def _record(
        self, body: wire.Results | wire.ReportResults, session_id: UUID, key_digest: bytes
    ) -> ports.SignedRecord:
        value = record_of(session_id, body.results, body.output, no_retry=frozenset(body.no_retry))
        return ports.SignedRecord(session_id, value, sign(value, key_digest))

    # From the stream -----------------------------------------------------------------------------------

    async def _settle_records(self, records: Sequence[ports.SignedRecord]) -> None:
        """Settle records in batches. Raises if the database is unavailable: they come again."""
        await self._read_keys({record.session_id for record in records})
        reports = _unique(report for record in records if (report := self._report_of(record)) is not None)
        outcomes = await asyncio.gather(*map(self._settler.settle, reports), return_exceptions=True)
        for report, outcome in zip(reports, outcomes, strict=True):
            if isinstance(outcome, AWAY):
                raise outcome
            if isinstance(outcome, BaseException):
                # Nothing else in the partition may wait for it; the rescue ends its attempts.
                log.error("results.unsettled", session=str(report.session_id), error=repr(outcome))
                metrics.STREAMED_RESULTS.labels("failed").inc(len(report.ended))
                continue
            metrics.STREAMED_RESULTS.labels("duplicate").inc(len(outcome))
            metrics.STREAMED_RESULTS.labels("settled").inc(len(report.ended) - len(outcome))

    async def _read_keys(self, session_ids: set[UUID]) -> None:
        """Read the keys of sessions, also of ended ones. Over all tenants: a record names none."""
        if missing := session_ids - self._keys.keys():
            async with self._database.connection() as connection:
                found = await sessions.session_keys(connection, session_ids=sorted(missing))
            while self._keys and len(self._keys) + len(found) > MAX_KEYS:
                del self._keys[next(iter(self._keys.keys() - session_ids), next(iter(self._keys)))]
            self._keys |= found

    def _report_of(self, record: ports.SignedRecord) -> Report | None:
        key = self._keys.get(record.session_id)
        if key is None or not is_signed(record.value, record.signature, key):
            _discard("unsigned", record)
            return None
        try:
            found: StreamedResults = read_record(record.value)
        except MainspringError as error:
            _discard("unreadable", record, error.message)
            return None
        if found.session_id != record.session_id:
            _discard("unsigned", record)
            return None
        ended = [
            AttemptResult(
                r.execution_id,
                r.attempt,
                found.session_id,
                r.status,
                min(r.duration_ms, MAX_DURATION_MS),
                r.exit_code,
                r.error_message,
                r.output,
                r.retry,
            )
            for r in found.results
        ]
        return Report(found.session_id, ended, found.logs)


def _unique(reports: Iterable[Report]) -> list[Report]:
    """Leave out results that an earlier record of the same batch has: settled together, both would count."""
    found, seen = [], set()
    for report in reports:
        fresh = []
        for ended in report.ended:
            key = (ended.execution_id, ended.attempt, ended.session_id)
            if key not in seen:
                fresh.append(ended)
                seen.add(key)
        metrics.STREAMED_RESULTS.labels("duplicate").inc(len(report.ended) - len(fresh))
        found.append(Report(report.session_id, fresh, report.output))
    return found


def _discard(reason: str, record: ports.SignedRecord, error: str = "") -> None:
    metrics.STREAMED_RESULTS.labels(reason).inc()
    log.warning("results.record_discarded", session=str(record.session_id), reason=reason, error=error or None)


def _ignore(settling: asyncio.Task[set[UUID]]) -> None:
    """The stream has the results: the outcome of the direct try no longer matters."""
    if not settling.cancelled():
        settling.exception()
