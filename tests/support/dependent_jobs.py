"""Jobs that need other jobs."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import dependencies, jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.settle import Settler
from mainspring.store.subscriptions import Subscriptions
from mainspring.views import refs
from mainspring.views.dependencies import dependencies_of
from tests.support.runs import TENANT, RunBench
from tests.support.silent_bus import SilentBus


class Jobs(RunBench):
    async def job(self, name: str, **more: Any) -> None:
        spec = JobSpec(name=name, task=NoopTask(), retries=RetryPolicy(max=0), **more)
        await jobs.create(self.database, spec, tenant=TENANT, by="test")

    async def needs(self, child: str, parent: str, **more: Any) -> wire.Dependencies:
        request = wire.NewDependency(job=parent, **more)
        return await dependencies.add(self.database, child, request, tenant=TENANT, by="test")

    async def execute(self, name: str, outcome: str = "succeeded") -> None:
        """One execution of a job, to its end."""
        row = await refs.job_row(self.database, name, tenant=TENANT)
        await Submitter(self.database).submit(Submission(TENANT, "test", row.job_id))
        await self.end(await self.claim(), lambda _: outcome)

    async def queued(self) -> list[str]:
        """What the duty has made of it since."""
        await self.timers.run_due()
        return [name for name, _ in await self.claim()]

    async def states(self, name: str) -> dict[str, str]:
        found = await dependencies_of(self.database, name, tenant=TENANT)
        return {need.job: need.state for need in found.needs}


MINUTELY = ScheduleSpec(every=60, aligned=True)


class Waits(Jobs):
    """Jobs whose settler knows of needs, as that of a server does."""

    async def open(self) -> None:
        subscriptions = Subscriptions(self.database, SilentBus())
        await subscriptions.read()
        self.settler = Settler(self.database, self.definitions, Announcer(SilentBus()), subscriptions=subscriptions)

    async def now_queued(self) -> list[str]:
        """What is queued without any duty having looked."""
        return sorted(name for name, _ in await self.claim())
