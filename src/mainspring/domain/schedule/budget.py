"""Step budget: bounds the work of a schedule computation, without a clock.

The layers that walk (rules, calendars, exclusions, unions, lists of fires) call `spend` as they go. A step is about two
microseconds of work. Inside `steps(n)` all of them together may spend `n`; then `TooCostly` is raised.

Plain cron expressions and intervals answer in constant time and spend nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

FIRE_STEPS: Final = 5_000
"""One question to a schedule while it fires, and every question that has no larger budget."""
SAVE_STEPS: Final = 2_000
"""One fire of a schedule that is saved: less than firing allows, so that saved schedules stay within their budget."""
REQUEST_STEPS: Final = 40_000
"""Everything that one request asks of schedules together: validation, previews, lists of next fires."""
BATCH_STEPS: Final = 1_000_000
"""Work in a thread or in a command line program, which holds no event loop."""

PAUSED_TOO_COSTLY: Final = (
    f"schedule too costly: finding its next fire takes more than {FIRE_STEPS:,} steps; "
    "change the schedule or its calendar, then resume the job"
)
"""Why the scheduler pauses a job. The alert `schedule_too_costly` recognizes it by the words before the colon."""


class TooCostly(Exception):
    """A computation that exceeded its step budget."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"more than {steps:,} steps")
        self.steps = steps


class Budget:
    """Steps that may still be spent."""

    __slots__ = ("_steps", "left")

    def __init__(self, steps: int) -> None:
        self._steps = self.left = steps

    @property
    def spent(self) -> int:
        return self._steps - self.left

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooCostly(self._steps)


_budget: ContextVar[Budget | None] = ContextVar("schedule_budget", default=None)


def spend(steps: int = 1) -> None:
    """Count steps against the budget in force, if any. Raises `TooCostly`."""
    budget = _budget.get()
    if budget is not None:
        budget.spend(steps)


def is_budgeted() -> bool:
    """Whether a budget is in force."""
    return _budget.get() is not None


@contextmanager
def steps(most: int) -> Iterator[Budget]:
    """Allow `most` steps inside, and no more than what an outer budget has left. The outer budget is charged too."""
    outer = _budget.get()
    budget = Budget(most if outer is None else min(most, max(outer.left, 0)))
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)
        if outer is not None:
            outer.left -= budget.spent
