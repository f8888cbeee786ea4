"""A cache of compiled workflow versions. A version never changes, so an entry never becomes stale."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.domain.execution import step_id, step_key
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.plan import Plan, PlanStep, plan_of
from mainspring.runs.expressions import EXPRESSIONS
from mainspring.store import workflows
from mainspring.store.db import Connection

INLINE_STEPS = 500
"""A larger workflow is compiled in a thread, beside the event loop."""
MAX_STEPS = 200_000
"""The cache is emptied when its plans have more steps than this."""


@dataclass(frozen=True, slots=True)
class CachedPlan:
    plan: Plan
    steps_id: UUID
    version: int
    lines: dict[int, int] = field(default_factory=dict)  # of steps that were released before, the line of each

    def execution(self, run_id: UUID, started_ms: int, step: PlanStep, item: int) -> UUID:
        """Return the id of the execution of a step."""
        return step_id(self.steps_id, started_ms, step_key(run_id, step.name, item))


class PlanCache:
    """Plans by (workflow, version)."""

    def __init__(self) -> None:
        self._plans: dict[tuple[UUID, int], CachedPlan] = {}
        self._steps = 0

    async def get(self, connection: Connection, *, tenant: int, job_id: UUID, version: int) -> CachedPlan | None:
        if (cached := self._plans.get((job_id, version))) is not None:
            return cached
        row = await workflows.workflow_version(connection, tenant=tenant, job_id=job_id, version=version)
        if row is None:
            return None
        if self._steps > MAX_STEPS:
            self._plans.clear()
            self._steps = 0
        plan = plan_of(row.spec) if len(row.spec.steps) <= INLINE_STEPS else await asyncio.to_thread(plan_of, row.spec)
        cached = CachedPlan(plan, row.steps_id, row.version)
        if any(condition.may_be_costly(text) for step in plan.steps for text in step.expressions):
            await EXPRESSIONS.prepare()
        self._steps += len(cached.plan.steps)
        self._plans[job_id, version] = cached
        return cached
