"""Logs of attempts, in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.execution import fire_ms_of
from mainspring.store.db import Connection
from mainspring.store.queries import q


async def append_logs(connection: Connection, *, session_id: UUID, output: Sequence[wire.Output]) -> None:
    """Append chunks of attempts that this session runs; others are ignored. The tenant is the execution's."""
    await connection.execute(
        q("append_logs"),
        session_id,
        [o.execution_id for o in output],
        [o.attempt for o in output],
        [o.seq for o in output],
        [o.stream for o in output],
        [o.data for o in output],
    )


async def read_logs(
    connection: Connection, *, tenant: int, execution_id: UUID, after: tuple[int, int], limit: int
) -> list[tuple[int, int, wire.Stream, bytes]]:
    rows = await connection.fetch(
        q("read_logs"), execution_id, tenant, instant(fire_ms_of(execution_id)), *after, limit
    )
    return [(r["attempt"], r["seq"], r["stream"], bytes(r["data"])) for r in rows]


async def read_logs_before(
    connection: Connection, *, tenant: int, execution_id: UUID, before: tuple[int, int], limit: int, size: int
) -> list[tuple[int, int, wire.Stream, bytes]]:
    """Chunks before a position, newest first: at most `limit`, and about `size` bytes."""
    since = instant(fire_ms_of(execution_id))
    rows = await connection.fetch(q("read_logs_before"), execution_id, tenant, since, *before, limit, size)
    return [(r["attempt"], r["seq"], r["stream"], bytes(r["data"])) for r in rows]
