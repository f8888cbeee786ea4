"""The records of the event stream, version 1: one event as JSON. Fields may be added to a version, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mainspring.wire.message import Response


class StreamEvent(Response, kw_only=True):
    """One event. The record's key is the job, or the alert; events of one key are in their order.

    `event_id` is the same whenever the event is sent again. `data` has `execution_id`, `job_id`, `job`, `status`,
    `retry_count`, `duration_ms` and `error_message` for events of executions; what channels receive for the others.
    """

    version: Literal[1]
    event_id: UUID
    event: str
    tenant: str
    occurred_at: datetime
    data: dict[str, Any]
