"""W3C trace context of executions: ids that follow from the execution, so that nothing is stored or sent for them.

The id of an execution is the id of its trace. The span of an attempt has an id that is computed from both, so a
submission can link to it before it begins.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from uuid import UUID

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class SpanRef:
    """A span of any trace."""

    trace_id: int
    span_id: int

    def __str__(self) -> str:
        """The value of a `traceparent` header, for a recorded span."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-01"


def attempt_span(execution_id: UUID, attempt: int) -> SpanRef:
    """Return the span of an attempt."""
    digest = hashlib.sha256(b"%b:%d" % (execution_id.bytes, attempt)).digest()
    return SpanRef(execution_id.int, int.from_bytes(digest[:8]) or 1)


def read_traceparent(text: str | None) -> SpanRef | None:
    """Return the span that a `traceparent` header names; None without a valid one."""
    found = None if text is None else _TRACEPARENT.fullmatch(text)
    if found is None or text is None or text.startswith("ff"):
        return None
    trace_id, span_id = int(found[1], 16), int(found[2], 16)
    return SpanRef(trace_id, span_id) if trace_id and span_id else None
