"""Logs of attempts, in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.clock import LAST_MS, instant
from mainspring.domain.execution import fire_ms_of
from mainspring.store.db import Connection
from mainspring.store.queries import q

Chunk = tuple[UUID, wire.Output]
"""Output of one attempt, and the session that reports it."""
LogRow = tuple[int, int, wire.Stream, bytes, datetime | None]
"""Attempt, sequence number, stream, data, and when it was stored: unknown for rows of earlier versions."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Bytes of output that were stored for a tenant, and attempts whose output was cut."""

    tenant: int
    bytes: int
    cut: int


async def append_logs(connection: Connection, *, chunks: Sequence[Chunk], cut: Sequence[int] = ()) -> list[Appended]:
    """Append chunks of attempts that their sessions run; others are ignored. The tenant is the execution's.

    The output of the tenants in `cut` is replaced by a line that says so, once per attempt.
    """
    return appended(await connection.fetch(q("append_logs"), *chunk_arrays(chunks), list(cut)))


def appended(rows: Iterable[Any]) -> list[Appended]:
    return [Appended(r["tenant_id"], r["bytes"], r["cut"]) for r in rows]


def chunk_arrays(chunks: Sequence[Chunk]) -> tuple[list[Any], ...]:
    return (
        [session_id for session_id, _ in chunks],
        [o.execution_id for _, o in chunks],
        [o.attempt for _, o in chunks],
        [o.seq for _, o in chunks],
        [o.stream for _, o in chunks],
        [o.data for _, o in chunks],
    )


def _not_before(execution_id: UUID) -> datetime:
    """When the execution was due; a made-up id may contain an instant beyond the range of datetime."""
    return instant(min(LAST_MS, fire_ms_of(execution_id)))


async def read_logs(
    connection: Connection, *, tenant: int, execution_id: UUID, after: tuple[int, int], limit: int
) -> list[LogRow]:
    rows = await connection.fetch(q("read_logs"), execution_id, tenant, _not_before(execution_id), *after, limit)
    return [_row(r) for r in rows]


async def read_logs_before(
    connection: Connection, *, tenant: int, execution_id: UUID, before: tuple[int, int], limit: int, size: int
) -> list[LogRow]:
    """Chunks before a position, newest first: at most `limit`, and about `size` bytes."""
    since = _not_before(execution_id)
    rows = await connection.fetch(q("read_logs_before"), execution_id, tenant, since, *before, limit, size)
    return [_row(r) for r in rows]


def _row(r: Any) -> LogRow:
    return (r["attempt"], r["seq"], r["stream"], bytes(r["data"]), r["received_at"])
