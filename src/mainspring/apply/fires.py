"""The next fires of a job before and after a change, for a plan."""

from __future__ import annotations

from datetime import datetime

from mainspring.clock import instant
from mainspring.domain.errors import Invalid
from mainspring.domain.schedule.budget import REQUEST_STEPS, TooCostly, steps
from mainspring.intake.jobs.bulk import JobWrite, Schedules
from mainspring.views.fires import next_fires
from mainspring.views.schedules import fires_of

SHOWN_FIRES = 3
MAX_SHOWN = 200
"""Changes of one plan that show fires."""


class Fires:
    """Computes fires for the first changes of a plan, within the budget of a request."""

    def __init__(self, resolver: Schedules, now_ms: int) -> None:
        self._resolver = resolver
        self._now_ms = now_ms
        self._left = MAX_SHOWN

    def of(self, write: JobWrite) -> tuple[list[datetime], list[datetime]]:
        """Fires before and after; both empty if the schedule stays."""
        before = write.before
        if self._left <= 0 or (before is not None and before.spec.schedule == write.spec.schedule):
            return [], []
        self._left -= 1
        try:
            with steps(REQUEST_STEPS):
                old = [] if before is None else next_fires(before, after_ms=self._now_ms, count=SHOWN_FIRES)
                new = fires_of(self._resolver.of(write.spec), after_ms=self._now_ms, count=SHOWN_FIRES)
        except (Invalid, TooCostly):
            return [], []
        return [*map(instant, old)], [*map(instant, new)]


def lost_fires(job: JobWrite, now_ms: int) -> list[datetime]:
    """The next fires of a job that is to be deleted."""
    try:
        with steps(REQUEST_STEPS):
            found = [] if job.before is None else next_fires(job.before, after_ms=now_ms, count=SHOWN_FIRES)
    except TooCostly:
        return []
    return [*map(instant, found)]
