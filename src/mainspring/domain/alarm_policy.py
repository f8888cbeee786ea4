"""When a watcher raises and ends its alarm about a silent cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AlarmState = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """A message to send: the cluster is silent, or answers again."""

    state: AlarmState
    reason: str
    since_s: float


class AlarmPolicy:
    """Raises an alarm when checks have failed for `after_s`, repeats it every `repeat_s`, and ends it at a success.

    An alarm that could not be sent is due again at the next check.
    """

    def __init__(self, *, after_s: float, repeat_s: float) -> None:
        self._after_s = after_s
        self._repeat_s = repeat_s
        self._failing_since: float | None = None
        self._raised_at: float | None = None

    def due(self, problem: str | None, now_s: float) -> Alarm | None:
        """Record the result of a check; return the alarm that is due now."""
        if problem is None:
            if self._raised_at is None:
                self._failing_since = None
                return None
            assert self._failing_since is not None
            return Alarm("resolved", "the cluster answers again", self._failing_since)
        if self._failing_since is None:
            self._failing_since = now_s
        if now_s - self._failing_since < self._after_s:
            return None
        if self._raised_at is not None and now_s - self._raised_at < self._repeat_s:
            return None
        return Alarm("firing", problem, self._failing_since)

    def sent(self, alarm: Alarm, now_s: float) -> None:
        """Record that every receiver has accepted an alarm."""
        if alarm.state == "firing":
            self._raised_at = now_s
        else:
            self._raised_at = self._failing_since = None
