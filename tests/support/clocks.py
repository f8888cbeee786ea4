"""Clocks of a process. Those of databases are in mainspring.testing."""

from __future__ import annotations

import asyncio

TICK_S = 0.02


class ManualClock:
    """A process clock that the test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now_ms(self) -> float:
        return self.at * 1000

    def monotonic(self) -> float:
        return self.at


class RunningTime:
    """A clock that stands still while the event loop is held up by other work of the machine."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._ticked_at = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        self.seconds += min(now - self._ticked_at, 2 * TICK_S)
        self._ticked_at = now
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def stop(self) -> float:
        self._timer.cancel()
        return self.seconds
