"""Suggested memory, CPU and timeout of a job, from what its attempts have used. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mainspring.domain.statistics import bucket_above, percentile

ENOUGH = 10
"""Attempts from which sizes are suggested."""
HEADROOM = 1.25
TIMEOUT_FACTOR = 3.0
"""A timeout ends what hangs. It is far above the longest success, because ending a slow attempt costs all its work."""
MIB = 2**20
LEAST_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """What attempts used: of how many, the peak memory in bytes, and the highest mean of thousandths of a core."""

    attempts: int = 0
    memory_max: int = 0
    cores_max: int = 0


@dataclass(frozen=True, slots=True)
class JobSize:
    """Amounts as users write them; None where too little is known."""

    memory: str | None
    cpu: str | None
    timeout_s: int | None


def suggest(used: MeasuredUse, durations: Mapping[int, int]) -> JobSize:
    """The sizes for a job with these attempts and these successes by bucket of duration."""
    known = used.attempts >= ENOUGH
    timeout_s = None
    if sum(durations.values()) >= ENOUGH:
        longest_s = bucket_above(max(durations)) / 1000
        p95_s = (percentile(durations, 0.95) or 0.0) / 1000
        timeout_s = _round_up(max(LEAST_TIMEOUT_S, TIMEOUT_FACTOR * p95_s, HEADROOM * longest_s))
    return JobSize(
        f"{_round_mib(HEADROOM * used.memory_max / MIB)}Mi" if known and used.memory_max else None,
        f"{max(0.1, math.ceil(HEADROOM * used.cores_max / 100) / 10):g}" if known else None,
        timeout_s,
    )


def _round_mib(mib: float) -> int:
    """Up to an eighth of the next power of two, at least 16: few distinct sizes, at most a quarter too large."""
    step = max(16, (1 << math.ceil(math.log2(max(mib, 1)))) // 8)
    return math.ceil(mib / step) * step


def _round_up(seconds: float) -> int:
    """Up to whole minutes, and beyond an hour to ten minutes."""
    step = 60 if seconds <= 3600 else 600
    return math.ceil(seconds / step) * step
