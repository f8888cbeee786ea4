"""Direct handoff of a step: released alone, it starts on an idle worker without a pass through the queue."""

from __future__ import annotations

from contextlib import AsyncExitStack
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
        self._worker: ports.IdleWorker | None = None
        self._row: Any = None  # the execution that was written as running on that worker
        self._stack = AsyncExitStack()

    async def reserve(self, line_id: int, *, tenant: int) -> UUID | None:
        """Reserve a worker with room for an execution of this line; return its session."""
        if self._handoff is None or self._worker is not None:
            return None
        self._worker = await self._stack.enter_async_context(self._handoff.reserve_worker(line_id, tenant=tenant))
        return None if self._worker is None else self._worker.session_id

    def released(self, row: Any, run: Run, plan: CachedPlan, ref: StepRef) -> None:
        """Note the execution of a step that was released alone, running or queued."""
        self._successors.add(row["execution_id"], run, plan, ref)
        if row["state"] == "running":
            self._row = row

    async def send(self) -> None:
        """Send the execution to the reserved worker. Call it after the commit."""
        if self._worker is not None and self._row is not None:
            await self._worker.assign(self._row)

    async def __aenter__(self) -> StepHandoff:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)
