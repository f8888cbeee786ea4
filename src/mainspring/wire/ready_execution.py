"""The records of the queue, version 1: one execution that is ready to start. Fields may be added, never changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.codec import decode
from mainspring.wire.message import Response

MAX_RECORD_BYTES = 4_000_000


class ReadyExecution(Response):
    """An execution that is queued. `line` and `rank`: where it is in PostgreSQL, which decides whether it starts."""

    version: Literal[1]
    execution_id: UUID
    job_id: UUID
    tenant: str
    task: dict[str, Any]
    params: Any
    estimated_duration: float | None
    shard_id: int
    scheduled_time: datetime
    priority: int
    line: int
    rank: int


class ReadyRef(msgspec.Struct, frozen=True):
    """What a dispatcher needs of a record."""

    version: Literal[1]
    execution_id: UUID
    line: int
    rank: int


def read_ready(value: bytes) -> ReadyRef:
    """Decode a record, or raise Invalid or TooLarge."""
    return decode(value, ReadyRef, limit=MAX_RECORD_BYTES, large_integers=True)
