"""Load beside the fires while engines are harmed, and how it must end: delayed, limited and cancelled executions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Conflict
from mainspring.worker.executors import Done, Work
from tests.support.recording_worker import JOB, QUEUE, WAIT_S, Recorder, Scene

LIMITED = "limited"
LIMIT = 2
READS = 3
"""Requests that a limited execution makes, so that others would overlap with it if the limit did not hold."""
SOON_S = 1.5
DELAYED, DROPPED, LIMITED_EACH = 4, 2, 5


@dataclass
class CountingRecorder(Recorder):
    """Also counts how many executions of the limited job run at once."""

    client: AsyncClient | None = None
    limited: UUID | None = None
    at_once: int = 0
    most_at_once: int = 0

    async def execute(self, work: Work) -> Done:
        if work.assignment.job_id != self.limited:
            return await super().execute(work)
        self.begun.append((work.assignment.execution_id, work.assignment.attempt))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.client is not None
        for _ in range(READS):
            assert (await self.client.execution(work.assignment.execution_id)).state == "running"
        self.at_once -= 1
        return Done("succeeded", 0)


@dataclass
class Load:
    """What was submitted, and its outcome."""

    scene: Scene
    recorder: CountingRecorder
    run: list[UUID] = field(default_factory=list)
    cancelled: list[UUID] = field(default_factory=list)

    async def open(self) -> None:
        concurrency = {"key": LIMITED, "limit": LIMIT}
        spec = {"name": LIMITED, "task": {"kind": "noop"}, "queue": QUEUE, "concurrency": concurrency}
        created = await self.scene.client.create_job({**spec, "priority": 9, "retries": {"max": 0}})
        self.recorder.client, self.recorder.limited = self.scene.client, created.job_id

    async def submit(self) -> None:
        """Executions for soon, some of which are cancelled, and more of the limited job than may run at once."""
        client, soon = self.scene.client, datetime.now(UTC) + timedelta(seconds=SOON_S)
        for number in range(DELAYED + DROPPED):
            at = soon + timedelta(milliseconds=150 * number)
            made = (await client.trigger(JOB, wire.RunNow(at=at))).execution_id
            await self._keep(made, drop=number >= DELAYED)
        made_limited = [(await client.trigger(LIMITED)).execution_id for _ in range(LIMITED_EACH)]
        for made in made_limited:
            await self._keep(made, drop=made == made_limited[-1])

    async def _keep(self, execution: UUID, *, drop: bool) -> None:
        if drop:
            try:
                found = await self.scene.client.cancel(execution)
            except Conflict:  # it has ended already
                drop = False
            else:
                drop = found.state == "cancelled"  # a running one ends as it does
        (self.cancelled if drop else self.run).append(execution)

    async def check(self) -> float:
        """Each ran once, none early, none that was cancelled, and never more at once than the limit.

        Returns by how much the latest was queued after its due time.
        """
        client, latest = self.scene.client, 0.0
        for execution in self.run:
            done = await client.wait(execution, timeout_s=WAIT_S)
            assert done.state in ("succeeded", "cancelled") and done.attempt == 1, done
            assert done.queued_at is not None and done.queued_at >= done.due_at, done
            latest = max(latest, (done.queued_at - done.due_at).total_seconds())
        for execution in self.cancelled:
            assert (await client.execution(execution)).state == "cancelled"
        ran = Counter(execution for execution, _ in self.recorder.begun)
        assert {execution: ran[execution] for execution in self.run} == dict.fromkeys(self.run, 1)
        assert not ran.keys() & set(self.cancelled), "a cancelled execution ran"
        assert self.cancelled and 1 <= self.recorder.most_at_once <= LIMIT, self.recorder.most_at_once
        return latest
