"""Where a step that is released alone meets a worker that waits: it begins there, without standing in the queue."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.runs.plans import Known
from mainspring.runs.successor import Links
from mainspring.store.runs import Place, Run


class Desk:
    """For one transaction. The worker asked for is kept from other work until the block around it ends."""

    def __init__(self, handoff: ports.DirectHandoff | None, links: Links) -> None:
        self.row: Any = None  # the execution that was given to the worker, once its transaction commits
        self.links = links
        self._handoff = handoff
        self._worker: ports.IdleWorker | None = None
        self._stack = AsyncExitStack()

    async def ask(self, line_id: int, *, tenant: int) -> UUID | None:
        """A session with room for something of this line."""
        if self._handoff is None or self._worker is not None:
            return None
        self._worker = await self._stack.enter_async_context(self._handoff.reserve_worker(line_id, tenant=tenant))
        return None if self._worker is None else self._worker.session_id

    def released(self, row: Any, run: Run, known: Known, place: Place) -> None:
        """A step was released alone, and begun or queued."""
        self.links.remember(row["execution_id"], run, known, place)
        if row["state"] == "running":
            self.row = row

    async def hand_over(self) -> None:
        """After the commit: the worker is told."""
        if self._worker is not None and self.row is not None:
            await self._worker.assign(self.row)

    async def __aenter__(self) -> Desk:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)
