"""Queries of the charts in the web UI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class StepCell:
    """The state of one step in one run."""

    run_id: UUID
    step: int
    state: str
    released_at: datetime | None
    finished_at: datetime | None
    execution_id: UUID | None


async def steps_of_runs(connection: Connection, *, tenant: int, wanted: Sequence[tuple[UUID, int]]) -> list[StepCell]:
    """`wanted`: runs, and the number of a step in each."""
    rows = await connection.fetch(q("steps_of_runs"), tenant, [run for run, _ in wanted], [step for _, step in wanted])
    return [StepCell(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class ExecutionTimes:
    """When an execution started, and its duration if it has ended."""

    started_at: datetime
    duration_ms: int | None


async def execution_times(
    connection: Connection, *, tenant: int, execution_ids: Sequence[UUID], since: datetime
) -> dict[UUID, ExecutionTimes]:
    """Times of executions that have started; none of them ended before `since`."""
    rows = await connection.fetch(q("execution_times"), tenant, list(execution_ids), since)
    return {row["execution_id"]: ExecutionTimes(row["started_at"], row["duration_ms"]) for row in rows}


async def history_pages(connection: Connection, *, days: Sequence[date]) -> dict[date, int]:
    """Size of each day of history in pages, over all tenants."""
    return {row["day"]: row["pages"] for row in await connection.fetch(q("history_pages"), list(days))}


async def fires_by_hour(
    connection: Connection, *, tenant: int, since: datetime, until: datetime, percent: float
) -> list[tuple[datetime, int, int]]:
    """Hour, fires and failures, from a sample of `percent` of the history pages of that time."""
    rows = await connection.fetch(q("fires_by_hour"), tenant, since, until, percent)
    return [(row["hour"], row["fires"], row["failed"]) for row in rows]


async def unspread_jobs(
    connection: Connection, *, tenant: int, schedule_ids: Sequence[int], each: int
) -> list[tuple[int, UUID, str]]:
    rows = await connection.fetch(q("unspread_jobs"), tenant, list(schedule_ids), each)
    return [(row["schedule_id"], row["job_id"], row["name"]) for row in rows]


async def oldest_queued(connection: Connection, *, tenant: int) -> datetime | None:
    found: datetime | None = await connection.fetchval(q("oldest_queued"), tenant)
    return found
