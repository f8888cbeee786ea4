"""Claiming: from queued to running, for a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q

Claimed = Any
"""A row: execution_id, job_id, version, attempt, session_id, fire_at, params."""


async def claim(connection: Connection, *, tenant: int, slots: Sequence[UUID], queues: Sequence[str]) -> list[Claimed]:
    """One session id per free slot in; claimed rows out."""
    rows: list[Claimed] = await connection.fetch(q("claim"), slots, queues, tenant)
    return rows


async def queued_queues(connection: Connection, *, queues: Sequence[str]) -> list[str]:
    """Looks across tenants: it only decides whether a claim, which does not, is worth its while."""
    return [r["queue"] for r in await connection.fetch(q("queued_queues"), queues)]
