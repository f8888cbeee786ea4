"""Limits the rate at which an attempt writes to disk, by pausing its processes.

Cgroups can't do this reliably: v1 does not slow writes through the page cache, which is nearly all of them, and v2 only
does where the disk and its file system support it.
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
"""Seconds' worth of the rate that may be written at once."""
PAUSE_ROUNDS = 5


def can_count_writes() -> bool:
    """Whether this kernel reports how much a process has written."""
    return _written_bytes(os.getpid()) is not None


class WriteThrottle:
    """Throttles one attempt. Call `check` often: nothing is limited in between.

    `members` returns the attempt's living processes.
    """

    def __init__(self, bytes_per_s: int, members: Callable[[], list[int]]) -> None:
        self._rate = bytes_per_s
        self._members = members
        self._excess = 0.0  # bytes written ahead of the rate
        self._checked_at = monotonic()
        # Totals of the last two checks: a process that is reaped between two readings is missing from one, and in its
        # parent's sum afterwards.
        self._totals: deque[int] = deque([0], maxlen=2)
        self._paused: set[int] = set()
        self._lock = threading.Lock()
        self._released = False

    def check(self) -> None:
        """Pause or resume the attempt according to what it has written since the last check."""
        with self._lock:
            if self._released:
                return
            now = monotonic()
            total = sum(_written_bytes(pid) or 0 for pid in self._members())
            allowed = self._rate * (now - self._checked_at)
            self._excess = max(0.0, self._excess - allowed) + max(0, total - max(self._totals))
            self._checked_at = now
            self._totals.append(total)
            if self._excess > self._rate * BURST_S or (self._paused and self._excess > 0):
                self._pause()
            else:
                self._resume()

    def release(self) -> None:
        """Resume the attempt for good: it must end, and a paused process would not receive SIGTERM."""
        with self._lock:
            self._released = True
            self._resume()

    def _pause(self) -> None:
        for _ in range(PAUSE_ROUNDS):  # a process that is just being started is found in the next round
            new = set(self._members()) - self._paused
            for pid in new:
                _send(pid, signal.SIGSTOP)
            self._paused |= new
            if not new:
                return

    def _resume(self) -> None:
        for pid in self._paused & set(self._members()):
            _send(pid, signal.SIGCONT)
        self._paused.clear()


def _written_bytes(pid: int) -> int | None:
    """Return the bytes that a process and its reaped children dirtied on disks; None if unknown."""
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
