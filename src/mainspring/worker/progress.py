"""Progress of an attempt: its latest report, and the rate since its first one."""

from __future__ import annotations

import math
import re
from pathlib import Path

from mainspring import wire
from mainspring.clock import Clock, SystemClock
from mainspring.domain.masking import Mask
from mainspring.worker.isolation.folders import open_regular
from mainspring.worker.output import clean_text

MAX_MESSAGE_CHARS = 200
TAIL_BYTES = 1000
_LINE = re.compile(
    r"\s*(?:(?P<percent>\d+(?:\.\d+)?)\s*%|(?P<done>\d+(?:\.\d+)?)(?:\s*/\s*(?P<total>\d+(?:\.\d+)?))?)(?:\s+(?P<message>.*))?\Z"
)


class Progress:
    """The latest progress of one attempt. Written by the event loop, read by the heartbeat thread."""

    __slots__ = ("_clock", "_first", "_mask", "done", "message", "rate", "total")

    def __init__(self, clock: Clock | None = None, *, mask: Mask | None = None) -> None:
        self._mask = mask
        self._clock = clock or SystemClock()
        self._first: tuple[float, float] | None = None
        self.done = 0.0
        self.total: float | None = None
        self.rate: float | None = None
        self.message: str | None = None

    def report(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Record a report. NaN and infinity are ignored: a progress report must not fail its attempt."""
        if not math.isfinite(done):
            return
        now = self._clock.monotonic()
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        elif done > self._first[1] and now > self._first[0]:
            self.rate = (done - self._first[1]) / (now - self._first[0])
        self.done = done
        self.total = total if total is not None and math.isfinite(total) and total > 0 else None
        if message and self._mask is not None:
            message = self._mask.text(message)
        self.message = clean_text(message)[:MAX_MESSAGE_CHARS] if message else None

    def read(self, line: str) -> None:
        """Record a line of the file in MAINSPRING_PROGRESS: `410/1000 loading`, `41% loading` or `410`."""
        if (found := _LINE.match(line)) is None:
            return
        if found["percent"]:
            self.report(float(found["percent"]), 100.0, found["message"])
        else:
            self.report(float(found["done"]), float(found["total"]) if found["total"] else None, found["message"])

    def refresh(self) -> None:
        """Read new progress from where the program puts it. Calls of `report` need no reading."""

    def as_wire(self, given: wire.Assignment) -> wire.ProgressReport | None:
        if self._first is None:
            return None
        return wire.ProgressReport(
            execution_id=given.execution_id,
            attempt=given.attempt,
            done=self.done,
            total=self.total,
            rate=self.rate,
            message=self.message,
        )


class FileProgress(Progress):
    """Progress that a program writes into a file, replacing the last line or adding one."""

    __slots__ = ("_path", "_seen")

    def __init__(self, path: Path, *, mask: Mask | None = None) -> None:
        super().__init__(mask=mask)
        self._path = path
        self._seen = (0, 0)  # modification time and size when last read

    def refresh(self) -> None:
        try:
            stat = self._path.lstat()
            if (stat.st_mtime_ns, stat.st_size) == self._seen:
                return
            with open_regular(self._path) as file:
                file.seek(max(0, stat.st_size - TAIL_BYTES))
                tail = file.read(TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return
        self._seen = (stat.st_mtime_ns, stat.st_size)
        if lines := tail.strip().splitlines():
            self.read(lines[-1])
