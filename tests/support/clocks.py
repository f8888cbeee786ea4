"""A process clock that a test moves. Those of databases are in mainspring.testing."""

from __future__ import annotations


class ManualClock:
    """A process clock that the test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now_ms(self) -> float:
        return self.at * 1000

    def monotonic(self) -> float:
        return self.at
