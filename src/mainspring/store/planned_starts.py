"""Planned starts of deadline-flexible jobs: what the leader plans from, and the plans that firing takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.clock import instant, millis
from mainspring.domain.execution import fire_key
from mainspring.store.db import Connection, json_array
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class FlexibleGroup:
    """Flexible jobs with the same schedule, queue and window. `job_ids`: of few jobs."""

    schedule_id: int
    key: str
    queue: str
    window: str
    jobs: int
    job_ids: Sequence[UUID] | None


@dataclass(frozen=True, slots=True)
class FixedLoad:
    """A schedule in a queue, and the number of its jobs that start at their fires."""

    schedule_id: int
    key: str
    queue: str
    jobs: int


@dataclass(frozen=True, slots=True)
class PlannedFire:
    """The starts of one fire of a group: one for each of `job_ids`, or shared by its executions."""

    schedule_id: int
    fire_ms: int
    queue: str
    window: str
    end_ms: int
    starts_ms: Sequence[int]
    job_ids: Sequence[UUID] | None
    takes_ms: float
    executions: int


@dataclass(frozen=True, slots=True)
class TakenStarts:
    """Starts that executions wait for already."""

    queue: str
    starts_ms: Sequence[int]
    takes_ms: float
    executions: int


async def has_flexible_jobs(connection: Connection) -> bool:
    return bool(await connection.fetchval(q("has_flexible_jobs")))


async def flexible_groups(connection: Connection, *, most: int, most_jobs: int) -> list[FlexibleGroup]:
    """Over all tenants: a leader duty. The jobs themselves are read of groups with up to `most_jobs`."""
    rows = await connection.fetch(q("flexible_groups"), most, most_jobs)
    return [FlexibleGroup(*row) for row in rows]


async def fixed_loads(connection: Connection, *, most: int, percent: float) -> list[FixedLoad]:
    rows = await connection.fetch(q("fixed_loads"), most, percent)
    return [FixedLoad(*row) for row in rows]


async def typical_durations(
    connection: Connection, *, loads: Sequence[tuple[int, str]], since: datetime, each: int
) -> dict[tuple[int, str], float]:
    """Mean duration in milliseconds of up to `each` jobs of each schedule and queue; those that ran only."""
    ids, names = [schedule_id for schedule_id, _ in loads], [queue for _, queue in loads]
    rows = await connection.fetch(q("typical_durations"), ids, names, since, each)
    return {(r["schedule_id"], r["queue"]): r["mean_ms"] for r in rows if r["mean_ms"] is not None}


async def longest_durations(
    connection: Connection, *, job_ids: Sequence[UUID], since: datetime
) -> dict[UUID, tuple[int, int]]:
    """The number of successes of each job, and the bucket of the longest; of jobs that succeeded."""
    rows = await connection.fetch(q("longest_durations"), job_ids, since)
    return {r["job_id"]: (r["succeeded"], r["bucket"]) for r in rows if r["bucket"] is not None}


async def taken_starts(connection: Connection, *, now: datetime, most: int) -> list[TakenStarts]:
    rows = await connection.fetch(q("taken_starts"), now, most)
    return [TakenStarts(r["queue"], [*map(millis, r["starts"])], r["takes_ms"], r["executions"]) for r in rows]


async def replace_plans(connection: Connection, *, now: datetime, plans: Sequence[PlannedFire]) -> None:
    """Replace the plans of all fires after `now`; those of earlier fires stay as they are."""
    await connection.execute(q("clear_planned_starts"), now)
    if not plans:
        return
    await connection.execute(
        q("write_planned_starts"),
        [plan.schedule_id for plan in plans],
        [instant(plan.fire_ms) for plan in plans],
        [plan.queue for plan in plans],
        [plan.window for plan in plans],
        [instant(plan.end_ms) for plan in plans],
        json_array(list(plan.starts_ms) for plan in plans),
        json_array(None if plan.job_ids is None else [str(job_id) for job_id in plan.job_ids] for plan in plans),
        [plan.takes_ms for plan in plans],
        [plan.executions for plan in plans],
    )


async def of_job(
    connection: Connection, *, tenant: int, job_id: UUID, fires_ms: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """The planned start and the end of the window of each of these fires that is planned."""
    rows = await connection.fetch(
        q("planned_starts_of_job"),
        job_id,
        tenant,
        [instant(at) for at in fires_ms],
        [f"{at:012x}" for at in fires_ms],
        [fire_key(at) for at in fires_ms],
    )
    return {millis(r["fire_at"]): (millis(r["start_at"]), millis(r["ends_at"])) for r in rows}
