"""Who made something that can outlive its process: a mark to leave on it, and whether that process still lives."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def _machine() -> str:
    """This boot of this machine, and the process numbers that count here."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"


def owner_mark() -> str:
    return f"{_machine()}/{os.getpid()}/{_started(os.getpid())}"


def owner_died(mark: str) -> bool:
    """Whether the process that left this mark is gone. Of another process namespace nothing can be said: no."""
    try:
        boot, space, pid, started = mark.split("/")
        number = int(pid)
    except ValueError:
        return False
    here, our_space = _machine().split("/")
    if boot != here:
        return True
    return space == our_space and _started(number) != started


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; process ids are used again. Empty: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
