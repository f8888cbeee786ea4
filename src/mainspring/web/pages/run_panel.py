"""The panel of a step beside the graph of its run: input, output, error."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.domain.workflow.spec import Step
from mainspring.intake.runs import StepRights, step_rights
from mainspring.views import executions as execution_views
from mainspring.views import logs as log_views
from mainspring.web.endpoint import PageRequest


@dataclass(frozen=True, slots=True)
class StepPanel:
    """A step with its definition, and with its execution and the end of its log as far as there are any."""

    step: wire.RunStep
    definition: Step | None
    execution: wire.Execution | None = None
    logs: wire.Logs | None = None


async def rights_in(
    request: PageRequest, run_id: UUID, names: Iterable[str], *, job_id: UUID, version: int
) -> dict[str, StepRights]:
    """Return which decisions about some steps of a run the reader may make."""
    caller = request.caller
    return await step_rights(
        request.context.runs,
        run_id,
        names,
        job_id=job_id,
        version=version,
        tenant=caller.tenant,
        by=caller.name,
        scopes=sorted(caller.scopes),
    )


async def step_panel(request: PageRequest, run: wire.Run, ref: tuple[int, int]) -> StepPanel | None:
    """Read the panel of one step, by the (number, item) that `step_states` returned."""
    database, tenant, runs = request.context.database, request.caller.tenant, request.context.run_views
    found = await runs.steps_by_ref(run, [ref], tenant=tenant)
    if not found:
        return None
    step, version = found[0], await runs.definition(run, tenant=tenant)
    definition = version.spec.steps.get(step.name) if version is not None else None
    if step.execution_id is not None and step.items is None:
        with suppress(NotFound):  # it has not been released yet
            execution = await execution_views.get(database, step.execution_id, tenant=tenant)
            logs, _ = await log_views.read_logs_before(database, step.execution_id, tenant=tenant)
            return StepPanel(step, definition, execution, logs)
    return StepPanel(step, definition)
