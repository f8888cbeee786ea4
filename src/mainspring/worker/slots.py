"""The slots of a worker: the attempts it holds and the capacity they leave free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.domain.execution import Outcome
from mainspring.worker.capacity import remaining
from mainspring.worker.executors import Work

log = structlog.get_logger()

MAX_DISCLAIMED = 10_000
MAX_PROGRESS_REPORTS = 1000
"""In one heartbeat."""


class Slots:
    """The attempts of this worker, from assignment until their results are accepted.

    The heartbeat thread calls `held` and `progress`; the event loop calls everything else.
    """

    def __init__(self, count: int, resources: Mapping[str, int]) -> None:
        self.count = count
        self._resources = resources
        self._running: dict[UUID, Work] = {}
        self._unreported: dict[UUID, int] = {}  # attempt by execution
        self._disclaimed: dict[tuple[UUID, int], None] = {}  # attempts that will never begin here
        self._demanding = 0  # running attempts that need resources, or the whole worker
        self.freed = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.on_freed: Callable[[], None] | None = None
        self.on_resources_freed: Callable[[], None] | None = None
        self.on_disclaim: Callable[[wire.Preempt], None] | None = None

    def add(self, works: Sequence[Work]) -> None:
        for work in works:
            execution_id = work.assignment.execution_id
            self._running[execution_id] = work
            self._unreported[execution_id] = work.assignment.attempt
            self._demanding += _is_demanding(work)
        if works:
            self.idle.clear()

    def release(self, work: Work) -> None:
        """Free the slot of an attempt that has ended."""
        execution_id = work.assignment.execution_id
        if self._running.get(execution_id) is work:  # and not the next attempt of the same execution
            del self._running[execution_id]
        self.freed.set()
        if not self._running:
            self.idle.set()
        if _is_demanding(work):
            self._demanding -= 1
            if self.on_resources_freed is not None:
                self.on_resources_freed()
        elif self.on_freed is not None:
            self.on_freed()

    def reported(self, results: Sequence[wire.Result]) -> None:
        """The api has accepted these results. The next attempt of an execution may have arrived before the answer."""
        for result in results:
            if self._unreported.get(result.execution_id) == result.attempt:
                del self._unreported[result.execution_id]

    def clear_unreported(self) -> None:
        """The session has ended: the api no longer accepts its results."""
        self._unreported.clear()

    # Capacity ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        return len(self._running)

    @property
    def free(self) -> int:
        """Free slots; none while an exclusive attempt runs."""
        if self._demanding and any(work.definition.exclusive for work in self._running.values()):
            return 0
        return self.count - len(self._running)

    def remaining_resources(self) -> dict[str, int] | None:
        """Resources beside what runs; None if all of them are free."""
        if not self._demanding:
            return None
        return remaining(self._resources, (work.definition for work in self._running.values()))

    def is_demanding(self, works: Sequence[Work]) -> bool:
        """Whether one of these attempts needs resources, or the whole worker."""
        return self._demanding > 0 and any(map(_is_demanding, works))

    # Heartbeat ---------------------------------------------------------------------------------------

    def held(self) -> list[UUID]:
        """The executions that belong to this session: running, or ended and not yet accepted."""
        return list(self._unreported.copy())

    def holds(self, assignment: wire.Assignment) -> bool:
        return self._unreported.get(assignment.execution_id) == assignment.attempt

    def progress(self) -> list[wire.ProgressReport]:
        """The latest progress of every attempt that reports any."""
        found = []
        for work in self._running.copy().values():
            if (progress := work.progress) is not None:
                progress.refresh()
                if (report := progress.as_wire(work.assignment)) is not None:
                    found.append(report)
        return found[:MAX_PROGRESS_REPORTS]

    # Ending attempts ---------------------------------------------------------------------------------

    def cancel(self, executions: Sequence[UUID]) -> None:
        for execution_id in executions:
            if work := self._running.get(execution_id):
                work.request_stop("cancelled")

    def preempt(self, attempts: Sequence[wire.Preempt]) -> None:
        """End these attempts, or disclaim them if they have not arrived.

        An old answer must not end a later attempt of the same execution.
        """
        for preempted in attempts:
            held = self._unreported.get(preempted.execution_id, -1)
            work = self._running.get(preempted.execution_id)
            if held < preempted.attempt:
                self._disclaim(preempted)
            elif work is not None and work.assignment.attempt == preempted.attempt and work.stop_outcome is None:
                work.request_stop("preempted")

    def disclaims(self, assignment: wire.Assignment) -> bool:
        """Whether this attempt was disclaimed before it arrived: by now another worker may have the execution."""
        return (assignment.execution_id, assignment.attempt) in self._disclaimed

    def _disclaim(self, attempt: wire.Preempt) -> None:
        key = (attempt.execution_id, attempt.attempt)
        if key in self._disclaimed or self.on_disclaim is None:
            return
        self._disclaimed[key] = None
        if len(self._disclaimed) > MAX_DISCLAIMED:
            del self._disclaimed[next(iter(self._disclaimed))]
        self.on_disclaim(attempt)

    def end_lost(self, executions: Sequence[UUID], asked: float) -> None:
        """End attempts that the api says this session does not hold.

        `asked` is when the heartbeat left, on the monotonic clock: the answer knows nothing of later attempts.
        """
        for execution_id in executions:
            if (work := self._running.get(execution_id)) and work.started < asked:
                log.warning("attempt.lost", execution=str(execution_id))
                work.request_stop("lost")

    def end_all(self, outcome: Outcome) -> None:
        for work in list(self._running.values()):
            work.request_stop(outcome)


def _is_demanding(work: Work) -> bool:
    return bool(work.definition.resources) or work.definition.exclusive
