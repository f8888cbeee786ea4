"""What this machine has, and what is left of it while attempts run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mainspring.domain.job import Definition
from mainspring.domain.placement.resources import Amounts, parse_amounts


def detect(root: Path = Path("/")) -> Amounts:
    """Cores and memory this process may use, free disk here, and NVIDIA devices."""
    found = {"cpu": len(os.sched_getaffinity(0)) * 1000, "memory": _memory(root), "disk": shutil.disk_usage(".").free}
    if gpus := sum(1 for path in (root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)):
        found["gpu"] = gpus
    return found


def _memory(root: Path) -> int:
    """Of the machine, or of the control group if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int((root / name).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return total


def parse_capacity(text: str) -> Amounts:
    """`cpu=4,memory=8Gi,gpu=1` as amounts; ValueError says what is wrong."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    for name, equals, value in pairs:
        if not equals or not value.strip():
            raise ValueError(f"{name.strip()!r} is not NAME=AMOUNT, such as cpu=4 or memory=8Gi")
    return parse_amounts({name.strip(): value.strip() for name, _, value in pairs})


def left(capacity: Mapping[str, int], running: Iterable[Definition]) -> Amounts | None:
    """What is free of `capacity` beside what runs; None if nothing of it is taken."""
    taken: Amounts = {}
    for definition in running:
        for name, amount in definition.resources.items():
            taken[name] = taken.get(name, 0) + amount
    if not taken:
        return None
    return {name: max(0, amount - taken.get(name, 0)) for name, amount in capacity.items()}
