"""Evaluates deadlines from the schedule, so they apply even when nothing has started. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mainspring.domain.schedule.recurrence import Schedule

DeadlineKind = Literal["finish_by", "max_gap"]
DeadlineState = Literal["ok", "due", "missed"]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected fires of a job: its schedule after activation, between its start and end."""

    schedule: Schedule
    active_from_ms: int
    start_ms: int | None = None
    end_ms: int | None = None

    def last(self, upto_ms: int) -> int | None:
        """The last instant up to and including `upto_ms`."""
        upto_ms = upto_ms if self.end_ms is None else min(upto_ms, self.end_ms)
        found = self.schedule.prev_before(upto_ms + 1)
        return found if found is not None and found > self._after() else None

    def first(self, after_ms: int) -> int | None:
        """The first instant after `after_ms`."""
        found = self.schedule.next_after(max(after_ms, self._after()))
        return None if found is None or (self.end_ms is not None and found > self.end_ms) else found

    def _after(self) -> int:
        return self.active_from_ms if self.start_ms is None else max(self.active_from_ms, self.start_ms - 1)


@dataclass(frozen=True, slots=True)
class DeadlineStatus:
    """`at_ms` is the instant by which a success is expected."""

    kind: DeadlineKind
    state: DeadlineState
    at_ms: int | None


def finish_by(expected: Expected, finish_ms: int, *, now_ms: int, done_ms: int | None) -> DeadlineStatus:
    """Evaluate `finish_by`: each fire must succeed within `finish_ms`. `done_ms` is the newest fire with a success.

    A success of a later fire covers earlier ones; a late success ends the violation.
    """
    passed = expected.last(now_ms - finish_ms)
    if passed is not None and (done_ms is None or done_ms < passed):
        return DeadlineStatus("finish_by", "missed", passed + finish_ms)
    after = max((at for at in (passed, done_ms) if at is not None), default=expected.active_from_ms)
    ahead = expected.first(after)
    if ahead is None:
        return DeadlineStatus("finish_by", "ok", None)
    return DeadlineStatus("finish_by", "due" if ahead <= now_ms else "ok", ahead + finish_ms)


def max_gap(
    expected: Expected | None, gap_ms: int, *, now_ms: int, active_from_ms: int, succeeded_ms: int | None
) -> DeadlineStatus:
    """Evaluate `max_gap`: at most `gap_ms` without a success, counted from the last success or from activation.

    The status is `due` once no remaining fire can meet the deadline.
    """
    at_ms = max(active_from_ms, succeeded_ms or active_from_ms) + gap_ms
    if now_ms > at_ms:
        return DeadlineStatus("max_gap", "missed", at_ms)
    ahead = None if expected is None else expected.first(now_ms)
    return DeadlineStatus(
        "max_gap", "due" if expected is not None and (ahead is None or ahead > at_ms) else "ok", at_ms
    )
