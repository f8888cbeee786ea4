"""Workflows in memory: a version never changes, so what was read and compiled once is true for good."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from mainspring.domain.execution import step_id, step_key
from mainspring.domain.workflow.plan import Plan, PlanStep, plan_of
from mainspring.store import workflows
from mainspring.store.db import Connection

MOST_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Known:
    plan: Plan
    steps_id: UUID
    version: int
    lines: dict[int, int] = field(default_factory=dict)  # of steps that were released before: where they wait

    def execution(self, run_id: UUID, started_ms: int, step: PlanStep, item: int) -> UUID:
        return step_id(self.steps_id, started_ms, step_key(run_id, step.name, item))


class Plans:
    """A cache by (workflow, version)."""

    def __init__(self) -> None:
        self._known: dict[tuple[UUID, int], Known] = {}
        self._steps = 0

    async def get(self, connection: Connection, *, tenant: int, job_id: UUID, version: int) -> Known | None:
        if (known := self._known.get((job_id, version))) is not None:
            return known
        row = await workflows.workflow_version(connection, tenant=tenant, job_id=job_id, version=version)
        if row is None:
            return None
        if self._steps > MOST_STEPS:
            self._known.clear()
            self._steps = 0
        known = Known(plan_of(row.spec), row.steps_id, row.version)
        self._steps += len(known.plan.steps)
        self._known[job_id, version] = known
        return known
