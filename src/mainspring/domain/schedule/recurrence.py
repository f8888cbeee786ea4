"""Schedules as strictly increasing instants (integer milliseconds), searchable in both directions."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Final

from mainspring.domain.duration import spell_duration
from mainspring.domain.schedule.budget import FIRE_STEPS, TooCostly, is_budgeted, spend, steps

SEARCH_MS: Final = 50 * 366 * 86_400_000


class Schedule(ABC):
    """Strictly increasing UTC instants."""

    __slots__ = ()

    @property
    def walks(self) -> bool:
        """Whether an answer may take more than constant time."""
        return False

    @abstractmethod
    def next_after(self, ms: int) -> int | None:
        """The first fire strictly after `ms`; None if there is none within 50 years."""

    @abstractmethod
    def prev_before(self, ms: int) -> int | None:
        """The last fire strictly before `ms`; None if there is none within 50 years."""

    @abstractmethod
    def describe(self) -> str:
        """The schedule as words: "at 02:00 every day (Europe/Berlin)"."""

    def between(self, start_ms: int, end_ms: int, limit: int) -> list[int]:
        """The first `limit` fires after `start_ms`, up to and including `end_ms`."""
        fires: list[int] = []
        fire = self.next_after(start_ms)
        while fire is not None and fire <= end_ms and len(fires) < limit:
            fires.append(fire)
            fire = self.next_after(fire)
        spend(len(fires))
        return fires

    def count_between(self, start_ms: int, end_ms: int) -> int:
        """How many fires are after `start_ms`, up to and including `end_ms`."""
        found, fire = 0, self.next_after(start_ms)
        while fire is not None and fire <= end_ms:
            spend()
            found, fire = found + 1, self.next_after(fire)
        return found

    def fires_at(self, ms: int) -> bool:
        return self.next_after(ms - 1) == ms

    def parts(self) -> "tuple[Schedule, ...]":
        """The schedules it is composed of; itself if it is simple."""
        return (self,)


class Interval(Schedule):
    """Elapsed time, independent of clock changes."""

    __slots__ = ("_every", "_phase")

    def __init__(self, every_ms: int, phase_ms: int) -> None:
        self._every, self._phase = every_ms, phase_ms

    def next_after(self, ms: int) -> int:
        return ms + self._every - (ms - self._phase) % self._every

    def prev_before(self, ms: int) -> int:
        return ms - 1 - (ms - 1 - self._phase) % self._every

    def count_between(self, start_ms: int, end_ms: int) -> int:
        return max(0, (end_ms - self._phase) // self._every - (start_ms - self._phase) // self._every)

    def describe(self) -> str:
        return f"every {spell_duration(self._every / 1000)}"


class Once(Schedule):
    """A single instant, as a member of a union."""

    __slots__ = ("_at",)

    def __init__(self, at_ms: int) -> None:
        self._at = at_ms

    def next_after(self, ms: int) -> int | None:
        return self._at if self._at > ms else None

    def prev_before(self, ms: int) -> int | None:
        return self._at if self._at < ms else None

    def describe(self) -> str:
        at = datetime.fromtimestamp(self._at / 1000, UTC).isoformat().replace("+00:00", "Z")
        return f"once at {at}"


class Metered(Schedule):
    """A schedule that walks. Without a larger budget in force, each question may take FIRE_STEPS, or is `TooCostly`."""

    __slots__ = ("base",)

    def __init__(self, base: Schedule) -> None:
        self.base = base

    @property
    def walks(self) -> bool:
        return True

    def next_after(self, ms: int) -> int | None:
        if is_budgeted():
            return self.base.next_after(ms)
        with steps(FIRE_STEPS):
            return self.base.next_after(ms)

    def prev_before(self, ms: int) -> int | None:
        if is_budgeted():
            return self.base.prev_before(ms)
        with steps(FIRE_STEPS):
            return self.base.prev_before(ms)

    def between(self, start_ms: int, end_ms: int, limit: int) -> list[int]:
        if is_budgeted():
            return self.base.between(start_ms, end_ms, limit)
        with steps(FIRE_STEPS + limit):
            return self.base.between(start_ms, end_ms, limit)

    def count_between(self, start_ms: int, end_ms: int) -> int:
        if is_budgeted():
            return self.base.count_between(start_ms, end_ms)
        with steps(FIRE_STEPS):
            return self.base.count_between(start_ms, end_ms)

    def describe(self) -> str:
        return self.base.describe()

    def parts(self) -> tuple[Schedule, ...]:
        return self.base.parts()


class Within(Schedule):
    """The fires of a schedule from `start_ms` to `end_ms`, both inclusive; either may be open."""

    __slots__ = ("_base", "_end", "_start")

    def __init__(self, base: Schedule, start_ms: int | None, end_ms: int | None) -> None:
        self._base, self._start, self._end = base, start_ms, end_ms

    @property
    def walks(self) -> bool:
        return self._base.walks

    def next_after(self, ms: int) -> int | None:
        fire = self._base.next_after(ms if self._start is None else max(ms, self._start - 1))
        return None if fire is None or (self._end is not None and fire > self._end) else fire

    def prev_before(self, ms: int) -> int | None:
        fire = self._base.prev_before(ms if self._end is None else min(ms, self._end + 1))
        return None if fire is None or (self._start is not None and fire < self._start) else fire

    def count_between(self, start_ms: int, end_ms: int) -> int:
        start = start_ms if self._start is None else max(start_ms, self._start - 1)
        end = end_ms if self._end is None else min(end_ms, self._end)
        return self._base.count_between(start, end) if start < end else 0

    def describe(self) -> str:
        return self._base.describe()

    def parts(self) -> tuple[Schedule, ...]:
        return self._base.parts()


def count_at_least(schedule: Schedule, start_ms: int, end_ms: int, most: int) -> int:
    """How many fires are after `start_ms`, up to `end_ms`; if that takes more than `most` steps, those found so far."""
    found, fire = 0, schedule.next_after(start_ms)
    try:
        with steps(most):
            return schedule.count_between(start_ms, end_ms)
    except TooCostly:
        pass
    try:
        with steps(most):
            while fire is not None and fire <= end_ms:
                spend()
                found, fire = found + 1, schedule.next_after(fire)
    except TooCostly:
        pass
    return found
