"""OpenTelemetry spans of submissions, attempts and results, exported over OTLP/HTTP by a thread of its own.

OpenTelemetry is imported only with an endpoint. When the queue of spans is full, further spans are dropped.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Invalid
from mainspring.domain.trace import SpanRef, attempt_span

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

PATH = "/v1/traces"
MOST_LINKS = 128
"""Executions that the span of one submission links to."""
MAX_ERROR_CHARS = 1_000
EXPORT_TIMEOUT_S = 5.0


class Spans:
    """The spans of one process. Methods return at once; times are milliseconds of the epoch."""

    def __init__(self, endpoint: str, *, role: str, clock: Clock | None = None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise Invalid("--otlp-endpoint needs the extra `otel`: pip install 'mainspring[otel]'") from None
        self._clock = clock or SystemClock()
        self._resource = Resource.create({"service.name": f"mainspring-{role}"})
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + PATH, timeout=EXPORT_TIMEOUT_S)
        self._processor: Any = BatchSpanProcessor(exporter)

    def now_ms(self) -> float:
        return self._clock.now_ms()

    def close(self) -> None:
        """Export what is pending."""
        self._processor.shutdown()

    def submitted(self, executions: Collection[UUID], *, since_ms: float, parent: SpanRef | None) -> None:
        """Record a submission, in the trace of the caller, with a link to the first attempt of each execution."""
        span = SpanRef(parent.trace_id if parent else secrets.randbits(128) | 1, secrets.randbits(64) | 1)
        links = [attempt_span(execution_id, 1) for execution_id in islice(executions, MOST_LINKS)]
        self._end("submit", span, parent, links, "producer", since_ms, {"mainspring.executions": len(executions)})

    def attempted(
        self, execution_id: UUID, attempt: int, *, job: str, kind: str, outcome: str, error: str | None, took_s: float
    ) -> None:
        """Record an attempt that has just ended, with a link to the one before it."""
        span = attempt_span(execution_id, attempt)
        links = [attempt_span(execution_id, attempt - 1)] if attempt > 1 else []
        attributes = {"mainspring.job": job, "mainspring.task": kind} | _identity(execution_id, attempt, outcome)
        since_ms = self.now_ms() - took_s * 1000
        self._end(f"attempt {job}", span, None, links, "consumer", since_ms, attributes, failed=_failed(outcome, error))

    def settled(self, ended: Iterable[tuple[UUID, int, str]], *, since_ms: float) -> None:
        """Record that results were settled, each below its attempt."""
        for execution_id, attempt, outcome in ended:
            parent = attempt_span(execution_id, attempt)
            span = SpanRef(parent.trace_id, secrets.randbits(64) | 1)
            self._end("settle", span, parent, [], "internal", since_ms, _identity(execution_id, attempt, outcome))

    def _end(
        self,
        name: str,
        span: SpanRef,
        parent: SpanRef | None,
        links: list[SpanRef],
        kind: str,
        since_ms: float,
        attributes: dict[str, Any],
        *,
        failed: str | None = None,
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        self._processor.on_end(
            ReadableSpan(
                name,
                context=_context(span),
                parent=None if parent is None else _context(parent, remote=True),
                resource=self._resource,
                attributes=attributes,
                links=[Link(_context(link, remote=True)) for link in links],
                kind=SpanKind[kind.upper()],
                status=Status(StatusCode.UNSET) if failed is None else Status(StatusCode.ERROR, failed),
                start_time=int(since_ms * 1e6),
                end_time=int(self.now_ms() * 1e6),
            )
        )


def open_spans(endpoint: str | None, *, role: str) -> Spans | None:
    """Return the exporter of an endpoint; None without one: then OpenTelemetry is not imported."""
    return None if endpoint is None else Spans(endpoint, role=role)


def check_endpoint(endpoint: str | None) -> str | None:
    """Refuse an address that spans can't be sent to."""
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise Invalid(f"--otlp-endpoint: {endpoint!r} is not an address such as http://localhost:4318")
    return endpoint


def _identity(execution_id: UUID, attempt: int, outcome: str) -> dict[str, Any]:
    return {
        "mainspring.execution": str(execution_id),
        "mainspring.attempt": attempt,
        "mainspring.outcome": outcome,
    }


def _failed(outcome: str, error: str | None) -> str | None:
    return None if outcome == "succeeded" else (error or outcome)[:MAX_ERROR_CHARS]


def _context(span: SpanRef, *, remote: bool = False) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(span.trace_id, span.span_id, is_remote=remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))
