"""The resources of this machine, and what running attempts leave of them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mainspring.domain.job import Definition
from mainspring.domain.placement.resources import Amounts, parse_amounts


def detect(root: Path = Path("/")) -> Amounts:
    """Return the cores and memory this process may use, free disk space, and the number of NVIDIA GPUs."""
    found = {"cpu": len(os.sched_getaffinity(0)) * 1000, "memory": _memory(root), "disk": shutil.disk_usage(".").free}
    if gpus := sum(1 for path in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)):
        found["gpu"] = gpus
    return found


def _memory(root: Path) -> int:
    """Return the memory of the machine, or of the cgroup if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int((root / name).read_text()))
        except (OSError, ValueError):  # no such cgroup, or "max"
            continue
    return total


def parse_capacity(text: str) -> Amounts:
    """Parse `cpu=4,memory=8Gi,gpu=1`; ValueError says what is wrong."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    for name, equals, value in pairs:
        if not equals or not value.strip():
            raise ValueError(f"{name.strip()!r} is not NAME=AMOUNT, such as cpu=4 or memory=8Gi")
    return parse_amounts({name.strip(): value.strip() for name, _, value in pairs})


def remaining(capacity: Mapping[str, int], running: Iterable[Definition]) -> Amounts | None:
    """Return what running attempts leave of `capacity`; None if they use none of it."""
    used: Amounts = {}
    for definition in running:
        for name, amount in definition.resources.items():
            used[name] = used.get(name, 0) + amount
    if not used:
        return None
    return {name: max(0, amount - used.get(name, 0)) for name, amount in capacity.items()}
