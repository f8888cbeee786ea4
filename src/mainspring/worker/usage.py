"""What attempts used, added up by job until the next heartbeat reports it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from uuid import UUID

from mainspring import wire

MAX_JOBS = 200
"""Jobs in one report. While more are pending, further ones are left out: the figures are for suggestions only."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time of a program and its children, and the memory of the largest process among them."""

    cpu_ms: int
    memory: int


class UsageTotals:
    """The event loop adds, the heartbeat thread takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[UUID, wire.JobUsage] = {}

    def add(self, job_id: UUID, usage: Usage, wall_ms: int) -> None:
        cores = usage.cpu_ms * 1000 // max(wall_ms, 1)
        self._merge([wire.JobUsage(job_id, 1, usage.cpu_ms, wall_ms, cores, usage.memory)])

    def take(self) -> list[wire.JobUsage]:
        """What is to be reported; give it back with `keep` if that fails."""
        with self._lock:
            taken, self._pending = self._pending, {}
        return list(taken.values())

    def keep(self, usage: list[wire.JobUsage]) -> None:
        self._merge(usage)

    def _merge(self, usage: list[wire.JobUsage]) -> None:
        with self._lock:
            for one in usage:
                known = self._pending.get(one.job_id)
                if known is None:
                    if len(self._pending) < MAX_JOBS:
                        self._pending[one.job_id] = one
                    continue
                self._pending[one.job_id] = wire.JobUsage(
                    one.job_id,
                    known.attempts + one.attempts,
                    known.cpu_ms + one.cpu_ms,
                    known.wall_ms + one.wall_ms,
                    max(known.cores_max, one.cores_max),
                    max(known.memory_max, one.memory_max),
                )
