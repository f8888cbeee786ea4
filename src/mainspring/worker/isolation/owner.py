"""Marks resources that can outlive their process, such as containers, with the process that owns them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def owner_mark() -> str:
    """Return a mark that identifies this process on this machine."""
    return f"{_machine()}/{os.getpid()}/{_start_time(os.getpid())}"


def owner_died(mark: str) -> bool:
    """Whether the process with this mark is gone. False if unknown, as for another process namespace."""
    try:
        boot, namespace, pid, started = mark.split("/")
        number = int(pid)
    except ValueError:
        return False
    own_boot, own_namespace = _machine().split("/")
    if boot != own_boot:
        return True
    return namespace == own_namespace and _start_time(number) != started


@cache
def _machine() -> str:
    """Return this boot of this machine and the process namespace."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"


def _start_time(pid: int) -> str:
    """Return when a process started, in ticks since boot, because process ids are reused; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
