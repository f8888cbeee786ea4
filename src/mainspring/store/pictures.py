"""What the pictures of the web UI read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class StepCell:
    """How one step went in one run."""

    run_id: UUID
    step: int
    state: str
    released_at: datetime | None
    finished_at: datetime | None
    execution_id: UUID | None


async def steps_of_runs(
    connection: Connection, *, tenant: int, wanted: Sequence[tuple[UUID, int]]
) -> list[StepCell]:  # fmt: skip
    """`wanted`: runs, and the number of a step in each."""
    rows = await connection.fetch(q("steps_of_runs"), tenant, [run for run, _ in wanted], [step for _, step in wanted])
    return [StepCell(**row) for row in rows]


async def started_executions(
    connection: Connection, *, tenant: int, execution_ids: Sequence[UUID], since: datetime
) -> dict[UUID, datetime]:
    """When each started, of those that have; none of them ended before `since`."""
    rows = await connection.fetch(q("started_executions"), tenant, list(execution_ids), since)
    return {row["execution_id"]: row["started_at"] for row in rows}
