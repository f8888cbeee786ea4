"""A watched folder, a job that its files start, and looks of the leader that a test asks for."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from mainspring import ports, wire
from mainspring.backends.watched_places import WatchedPlaces
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.trigger import TriggerSpec
from mainspring.domain.watch import FilesSource, read_roots
from mainspring.duties.file_watch import FileWatch
from mainspring.intake import jobs
from mainspring.intake.triggers import definitions
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.vault.vault import Vault
from mainspring.views import executions as execution_views
from mainspring.views import triggers as views

TENANT = 1
BY = "test"


class Inbox:
    """The folder `inbox` below an allowed root. Time stands still until the test moves it."""

    def __init__(self, database: Database, clock: VirtualClock, root: Path) -> None:
        self.database = database
        self.clock = clock
        self.folder = root / "inbox"
        self.folder.mkdir()
        self.roots = [str(root)]
        self.places: ports.FilePlaces = WatchedPlaces()

    async def job(self, name: str = "load", **more: Any) -> UUID:
        return await jobs.create(self.database, JobSpec(name=name, task=NoopTask(), **more), tenant=TENANT, by=BY)

    async def watch(self, name: str = "inbox", *, job: str = "load", **more: Any) -> wire.Trigger:
        """Create a trigger; `source` fields and those of the trigger."""
        return await definitions.create(self.database, Vault(), name, self.spec(job=job, **more), tenant=TENANT, by=BY)

    def spec(self, *, job: str = "load", **more: Any) -> TriggerSpec:
        of_source = {k: more.pop(k) for k in ("place", "pattern", "existing", "interval", "settle") if k in more}
        source = FilesSource(**{"place": str(self.folder), **of_source})
        return TriggerSpec(source=source, job=job, **more)

    def write(self, path: str, text: str = "x", *, modified_at: datetime | None = None) -> None:
        full = self.folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        at = (modified_at or self.clock.now).timestamp()
        os.utime(full, (at, at))

    async def look(self, *, later_s: float = 0.0) -> float | None:
        """Move the clock, and have the leader look wherever a look is due."""
        if later_s:
            await self.clock.advance(seconds=later_s)
        return await FileWatch(self.database, self.places, read_roots(self.roots)).look_all()

    async def executions(self, job: str = "load") -> list[wire.Execution]:
        found = await execution_views.list_executions(self.database, tenant=TENANT, job=job, limit=500)
        return sorted(found.items, key=lambda e: e.execution_id)

    async def started(self, job: str = "load") -> list[str]:
        """The files that started an execution, in order."""
        found = [execution.started_by for execution in await self.executions(job)]
        return sorted(str(start.event) for start in found if start is not None)

    async def trigger(self, name: str = "inbox") -> wire.Trigger:
        return await views.get(self.database, name, tenant=TENANT)
