"""Queries of the start page: what needs an operator, and the figures of its charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.domain.start_delay import OwnLimits
from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class OpenLetter:
    """An open dead letter, as far as a list shows it."""

    dead_letter_id: UUID
    job_id: UUID
    job: str
    error: str | None
    reason: str | None
    ended_as: str
    created_at: datetime
    claimed_by: str | None
    claimed_until: datetime | None
    step: str | None


@dataclass(frozen=True, slots=True)
class LineHead:
    """The next execution of a line."""

    execution_id: UUID
    job_id: UUID
    job: str
    queue: str
    trigger: str
    attempt: int
    due_at: datetime
    queued_at: datetime


@dataclass(frozen=True, slots=True)
class PausedJob:
    job_id: UUID
    name: str
    paused_at: datetime
    reason: str | None
    until: datetime | None


async def failing_candidates(connection: Connection, *, tenant: int, limit: int) -> list[UUID]:
    """Active jobs with open dead letters."""
    return [r["job_id"] for r in await connection.fetch(q("failing_candidates"), tenant, limit)]


async def open_letters(connection: Connection, *, tenant: int, ids: Sequence[UUID]) -> list[OpenLetter]:
    return [OpenLetter(*r.values()) for r in await connection.fetch(q("open_letters"), tenant, list(ids))]


async def live_runs(connection: Connection, *, tenant: int, limit: int) -> list[Any]:
    return list(await connection.fetch(q("live_runs"), tenant, limit))


async def line_heads(connection: Connection, *, tenant: int, limit: int) -> list[LineHead]:
    """The next execution of each line, those that have waited longest first."""
    rows = await connection.fetch(q("line_heads"), tenant, limit)
    return [LineHead(r["execution_id"], r["job_id"], r["name"] or "", *list(r.values())[3:]) for r in rows]


async def paused_jobs(connection: Connection, *, tenant: int, limit: int) -> list[PausedJob]:
    return [PausedJob(*r.values()) for r in await connection.fetch(q("paused_jobs"), tenant, limit)]


async def failures_by_hour(connection: Connection, *, tenant: int, now: datetime, hours: int) -> list[int]:
    """Failures in each of the hours before `now`, the oldest first; their sum is the number of failures."""
    found = {r["hours_ago"]: r["n"] for r in await connection.fetch(q("failures_by_hour"), tenant, now, hours)}
    return [found.get(ago, 0) for ago in range(hours - 1, -1, -1)]


async def own_limits(connection: Connection, *, tenant: int, job_ids: Sequence[UUID]) -> dict[UUID, OwnLimits]:
    rows = await connection.fetch(q("own_limits"), tenant, list(job_ids))
    return {r["job_id"]: OwnLimits(r["overlap"], r["concurrency"], r["spacing_s"] * 1000) for r in rows}
