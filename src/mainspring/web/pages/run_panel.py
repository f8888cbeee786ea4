"""The panel of a step beside the graph of its run: input, output, error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.domain.workflow.spec import Step
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
