"""Direct handoff of a step: released alone, it starts on an idle worker without a pass through the queue."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.workflow.run import Run, StepRef
from mainspring.runs.plans import CachedPlan
from mainspring.runs.successor import SuccessorCache


class StepHandoff:
    """The handoff of one transaction. It reserves at most one worker, until the block around it ends."""

    def __init__(self, handoff: ports.DirectHandoff | None, successors: SuccessorCache) -> None:
        self._handoff = handoff
        self._successors = successors
        self._reserved: ports.Reservation | None = None
        self._row: Any = None  # the execution that was written as running on that worker
        self._stack = ExitStack()

    def reserve(self, line_id: int, *, tenant: int) -> UUID | None:
        """Reserve a slot for an execution of this line; return the session of its worker."""
        if self._handoff is None or self._reserved is not None:
            return None
        reserved = self._stack.enter_context(self._handoff.reserve(line_id, 1, tenant=tenant))
        if not reserved.sessions:
            return None
        self._reserved = reserved
        return reserved.sessions[0]

    def released(self, row: Any, run: Run, plan: CachedPlan, ref: StepRef) -> None:
        """Note the execution of a step that was released alone, running or queued."""
        self._successors.add(row["execution_id"], run, plan, ref)
        if row["state"] == "running":
            self._row = row

    async def send(self) -> None:
        """Send the execution to the reserved worker. Call it after the commit."""
        if self._reserved is not None and self._row is not None:
            await self._reserved.assign([self._row])

    async def __aenter__(self) -> StepHandoff:
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
