"""Reads after own writes, through any api process.

Api processes cache reads for up to a second. The response to a write names it; the response to a read that sends the
name back shows that write, whichever process serves it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.clock import Clock, SystemClock

WRITTEN = "mainspring-written"
SEEN_AFTER = "Mainspring-Seen-After"
RECENT_S = 2.0
"""Longer than any cached read is kept."""
MOST_PROCESSES = 16
MOST_NAME = 64


class OwnWrites:
    """The latest write through each api process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._latest: dict[str, tuple[str, float]] = {}

    def note(self, written: str) -> None:
        """Keep the name of a write, from the header of its response; empty from a server without a cache."""
        if 0 < len(written) <= MOST_NAME and written.isascii() and written.isprintable():
            process = written.partition("-")[0]
            self._latest.pop(process, None)
            self._latest[process] = (written, self._clock.monotonic())

    def headers(self, others: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """Return the headers of a read: `others`, and the names of recent writes."""
        if not self._latest:
            return others
        since = self._clock.monotonic() - RECENT_S
        self._latest = {process: write for process, write in self._latest.items() if write[1] > since}
        names = [name for name, _ in self._latest.values()][-MOST_PROCESSES:]
        return {**(others or {}), SEEN_AFTER: ",".join(names)} if names else others
