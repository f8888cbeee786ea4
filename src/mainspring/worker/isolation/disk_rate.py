"""Holds what an attempt writes to disk to a rate: whoever is ahead of it stands still until time has caught up.

By stopping its processes, since little else holds: control groups of v1 can't slow what goes through the page cache,
which is nearly all writing, and those of v2 only where the disk and its file system play along.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

BURST_S = 0.5
"""So much of the rate may be written at once."""
ROUNDS = 5


def can_count() -> bool:
    """Whether this kernel tells how much a process has written."""
    return _written(os.getpid()) is not None


class Pace:
    """Of one attempt, whose living processes `members` names. Call `look` often: in between nothing is held."""

    def __init__(self, rate: int, members: Callable[[], list[int]]) -> None:
        self._rate = rate
        self._members = members
        self._debt = 0.0
        self._looked_at = monotonic()
        # Of the last two looks: who is reaped between two readings is missing in one and in its parent's sum after.
        self._totals: deque[int] = deque([0], maxlen=2)
        self._stopped: set[int] = set()
        self._lock = threading.Lock()
        self._released = False

    def look(self) -> None:
        with self._lock:
            if self._released:
                return
            now = monotonic()
            total = sum(_written(pid) or 0 for pid in self._members())
            paid = self._rate * (now - self._looked_at)
            self._debt = max(0.0, self._debt - paid) + max(0, total - max(self._totals))
            self._looked_at = now
            self._totals.append(total)
            if self._debt > self._rate * BURST_S or (self._stopped and self._debt > 0):
                self._stop()
            else:
                self._go_on()

    def release(self) -> None:
        """For good. It must end, and a stopped process would not hear of it."""
        with self._lock:
            self._released = True
            self._go_on()

    def _stop(self) -> None:
        for _ in range(ROUNDS):  # what is just being started is found in the next round
            new = set(self._members()) - self._stopped
            for pid in new:
                _send(pid, signal.SIGSTOP)
            self._stopped |= new
            if not new:
                return

    def _go_on(self) -> None:
        for pid in self._stopped & set(self._members()):
            _send(pid, signal.SIGCONT)
        self._stopped.clear()


def _written(pid: int) -> int | None:
    """Bytes that a process, and children it has waited for, made dirty on disks; None if nobody knows."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            for line in file:
                if line.startswith(b"write_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
