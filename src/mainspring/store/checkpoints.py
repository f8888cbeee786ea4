"""Checkpoints: where the next attempt of an execution resumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


async def save_checkpoints(connection: Connection, *, session_id: UUID, saved: Sequence[tuple[UUID, int, Any]]) -> None:
    """Save (execution, attempt, value); a shared session may save for several tenants."""
    await connection.execute(
        q("save_checkpoints"), session_id, [s[0] for s in saved], [s[1] for s in saved], [s[2] for s in saved]
    )


async def read_checkpoints(
    connection: Connection, *, session_id: UUID, attempts: Sequence[tuple[UUID, int]]
) -> dict[UUID, Any]:
    """Return the checkpoints for attempts that the session runs, of any tenant; attempt 0: whichever it runs."""
    rows = await connection.fetch(q("read_checkpoints"), session_id, [a[0] for a in attempts], [a[1] for a in attempts])
    return {r["execution_id"]: r["value"] for r in rows}


async def forget_checkpoints(connection: Connection) -> None:
    """Delete checkpoints of final executions of all tenants."""
    await connection.execute(q("forget_checkpoints"))
