"""The only module that reads a clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""The last instant a calendar of four-digit years has."""


class Clock(Protocol):
    """Wall time in milliseconds, and a monotonic one in seconds that never jumps."""

    def now_ms(self) -> float: ...
    def monotonic(self) -> float: ...


class SystemClock:
    """This machine's clock: for display and for measuring, never for a decision between nodes."""

    def now_ms(self) -> float:
        return time.time() * 1000

    def monotonic(self) -> float:
        return time.monotonic()


class DatabaseClock:
    """Database time, kept on the monotonic clock between measurements.

    `observe` takes a database instant and the monotonic times just before and after asking for it.
    The tightest of the recent answers counts: half its round trip bounds its error.
    """

    def __init__(self) -> None:
        self._offset_ms: float | None = None
        self._error_ms = float("inf")
        self._measured_at = 0.0

    def observe(self, database_ms: float, before: float, after: float) -> None:
        error = (after - before) * 500
        offset = database_ms - (before + after) * 500
        # An old measurement drifts (50 ppm is generous), so a new one may replace it though it is wider;
        # and one that can't be explained by both errors means that the database's clock was set.
        drifted = self._error_ms + (after - self._measured_at) * 0.05
        stepped = self._offset_ms is not None and abs(offset - self._offset_ms) > error + drifted
        if error <= drifted or stepped:
            self._offset_ms = offset
            self._error_ms, self._measured_at = error, after

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def now_ms(self) -> float:
        if self._offset_ms is None:
            raise RuntimeError("database time was never measured")
        return time.monotonic() * 1000 + self._offset_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def skew_s(self) -> float:
        """How far this machine's wall clock is ahead of the database."""
        return (time.time() * 1000 - self.now_ms()) / 1000


def boottime() -> float:
    """Seconds that also count while the machine sleeps, the same in every process of it: for leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def instant(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def whole_millis(at: datetime) -> int:
    """The last whole millisecond that is not after `at`: which fires lie before an instant must be exact."""
    return (at - _EPOCH) // timedelta(milliseconds=1)
