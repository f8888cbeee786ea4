"""Clocks: the only module that reads the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""The last instant with a four-digit year."""


class Clock(Protocol):
    """Wall time in milliseconds, and monotonic time in seconds."""

    def now_ms(self) -> float: ...
    def monotonic(self) -> float: ...


class SystemClock:
    """This machine's clock: for display and measurements, never for decisions between nodes."""

    def now_ms(self) -> float:
        return time.time() * 1000

    def monotonic(self) -> float:
        return time.monotonic()


class DatabaseClock:
    """Database time, extrapolated with the monotonic clock between measurements.

    `observe` takes a database instant and the monotonic times just before and after the query. The recent
    measurement with the shortest round trip counts: half of it bounds the error. `monotonic` is this process's clock.
    """

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        self._monotonic = monotonic or SystemClock().monotonic
        self._offset_ms: float | None = None
        self._error_ms = float("inf")
        self._measured_at = 0.0

    def observe(self, database_ms: float, before: float, after: float) -> None:
        error = (after - before) * 500
        offset = database_ms - (before + after) * 500
        # An old measurement drifts (50 ppm is a generous bound), so a less precise new one may replace it. A
        # difference that both errors cannot explain means that the database's clock was set.
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
        return self._monotonic() * 1000 + self._offset_ms

    def monotonic(self) -> float:
        return self._monotonic()

    def skew_s(self) -> float:
        """Return the seconds by which this machine's wall clock is ahead of the database."""
        return (time.time() * 1000 - self.now_ms()) / 1000


def boottime() -> float:
    """Return seconds since boot, including suspend; the same in all processes of a machine. For leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def instant(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def whole_millis(at: datetime) -> int:
    """Return the last whole millisecond not after `at`. Rounding down keeps `fires before an instant` exact."""
    return (at - _EPOCH) // timedelta(milliseconds=1)
