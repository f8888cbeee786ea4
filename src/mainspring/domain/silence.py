"""When nobody shall be told: silences and maintenance windows, by matchers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout, blackout_until

LABELS = ("rule", "severity", "job", "queue", "key")


@dataclass(frozen=True, slots=True)
class Silence:
    """Holds back what fits all its matchers (`*` stands for anything), while its window is open."""

    tenant: int
    matchers: Mapping[str, str]
    window: Blackout | RecurringBlackout

    def fits(self, labels: Mapping[str, str]) -> bool:
        return all(fnmatchcase(labels.get(name, ""), pattern) for name, pattern in self.matchers.items())


def silenced_until(silences: Sequence[Silence], labels: Mapping[str, str], *, tenant: int, now_ms: int) -> int | None:
    """Until when something with these labels is held back; None if it is not."""
    windows = [s.window for s in silences if s.tenant == tenant and s.fits(labels)]
    return blackout_until(windows, now_ms) if windows else None
