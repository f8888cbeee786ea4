"""Silences and maintenance windows: which notifications they hold back. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mainspring.domain.schedule.calendar import Blackout, RecurringBlackout, blackout_until

LABELS = ("rule", "severity", "job", "queue", "key")


@dataclass(frozen=True, slots=True)
class Silence:
    """Holds back notifications whose labels match all its matchers (`*` matches anything) during its window."""

    tenant: int
    matchers: Mapping[str, str]
    window: Blackout | RecurringBlackout

    def fits(self, labels: Mapping[str, str]) -> bool:
        return all(fnmatchcase(labels.get(name, ""), pattern) for name, pattern in self.matchers.items())


def silenced_until(silences: Sequence[Silence], labels: Mapping[str, str], *, tenant: int, now_ms: int) -> int | None:
    """The end of the silence that covers these labels, or None."""
    windows = [s.window for s in silences if s.tenant == tenant and s.fits(labels)]
    return blackout_until(windows, now_ms) if windows else None
