"""Start delay of an execution, without the wait that its job's own limits cause. Pure.

An execution is late if it starts later than it could. It can start when it is due, and when its job's overlap policy,
concurrency key and rate allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WAITING_OVERLAPS = ("queue_one", "queue_all")
"""Overlap policies with which a fire waits for the previous execution."""


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """What makes executions of a job wait for one another. `spacing_ms`: the rate's, 0 without one."""

    overlap: str = "allow"
    concurrency: bool = False
    spacing_ms: float = 0.0

    @property
    def wait(self) -> bool:
        return self.overlap in WAITING_OVERLAPS or self.concurrency or self.spacing_ms > 0


@dataclass(frozen=True, slots=True)
class Started:
    """An execution of the same job that has started, and maybe ended."""

    started_at: datetime
    finished_at: datetime | None


def own_delay_ms(
    due_at: datetime, queued_at: datetime | None, started_at: datetime, limits: OwnLimits, others: Sequence[Started]
) -> int | None:
    """Milliseconds from the earliest allowed start to the start; None if the earliest one is not known.

    `others`: the known executions of the job. One that ended while this one waited has released it; one that started
    shortly before it has taken the rate's turn.
    """
    allowed = due_at
    if limits.overlap in WAITING_OVERLAPS and queued_at is not None:
        allowed = max(allowed, queued_at)  # when the previous execution ended
    if limits.concurrency or limits.spacing_ms:
        before = [o for o in others if o.started_at < started_at]
        ends = [o.finished_at for o in before if o.finished_at is not None and due_at < o.finished_at <= started_at]
        spacing = timedelta(milliseconds=limits.spacing_ms)
        turns = [o.started_at + spacing for o in before if limits.spacing_ms and o.started_at + spacing > due_at]
        if not before:
            return None
        allowed = max([allowed, *(ends if limits.concurrency else []), *turns])
    return max(0, round((started_at - allowed).total_seconds() * 1000))
