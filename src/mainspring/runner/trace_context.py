"""Continues the trace of an execution in a function that uses OpenTelemetry."""

from __future__ import annotations

import sys
from uuid import UUID

from mainspring.domain.trace import attempt_span


def continue_trace(execution_id: str, attempt: int) -> None:
    """Make the span of an attempt the current one of this call, if the user's code has imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return
    from opentelemetry import context, trace

    span = attempt_span(UUID(execution_id), attempt)
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    remote = trace.SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)
    context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))  # of this call only: it has its own
