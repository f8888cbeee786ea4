"""Backfill ranges: which instants to execute, in which order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mainspring.domain.execution import State
from mainspring.domain.schedule.budget import TooCostly, spend
from mainspring.domain.schedule.recurrence import Schedule

Reprocess = Literal["none", "failed", "all"]
Order = Literal["oldest", "newest"]
BackfillState = Literal["running", "paused", "finished", "cancelled"]

UNSUCCESSFUL: frozenset[State] = frozenset(("failed", "timed_out", "lost", "cancelled", "skipped"))


@dataclass(frozen=True, slots=True)
class Range:
    """The instants of a schedule from `from_ms` up to, not including, `to_ms`."""

    schedule: Schedule
    from_ms: int
    to_ms: int

    def following(self, cursor_ms: int | None, order: Order, count: int) -> list[int]:
        """The next instants in that order after the cursor; fewer if the step budget ends, but at least one."""
        if order == "oldest":
            after_ms, step = self.from_ms - 1 if cursor_ms is None else cursor_ms, self.schedule.next_after
        else:
            after_ms, step = self.to_ms if cursor_ms is None else cursor_ms, self.schedule.prev_before
        found: list[int] = []
        try:
            at = step(after_ms)
            while at is not None and self.from_ms <= at < self.to_ms and len(found) < count:
                found.append(at)
                spend()
                at = step(at)
        except TooCostly:
            if not found:
                raise
        return found


def is_wanted(latest: State | None, reprocess: Reprocess) -> bool:
    """Whether to execute an instant, given the state of its latest execution. A live one is skipped."""
    if reprocess == "all" or latest is None:
        return True
    return latest == "skipped" if reprocess == "none" else latest in UNSUCCESSFUL


def wanted(instants: Sequence[int], latest: Mapping[int, State], reprocess: Reprocess) -> list[int]:
    return [at for at in instants if is_wanted(latest.get(at), reprocess)]


def backfill_key(backfill_id: object, fire_ms: int) -> str:
    """The trigger key of one instant, which makes each instant of a backfill unique."""
    return f"backfill:{backfill_id}:{fire_ms}"
