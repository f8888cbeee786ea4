"""Places on workers that are kept for somebody: reserved for a time, or made by others who left. Pure.

A hold takes nothing away from those it is for, nor from anything that is sure to have ended before it begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from mainspring.domain.placement.demand import Demand

Amounts = tuple[int, Mapping[str, int]]
"""Slots, and resources."""


@dataclass(frozen=True, slots=True)
class Who:
    """An execution that looks for a place: whose it is, and when it will have ended at the latest."""

    tenant: int
    queue: str
    job_id: UUID
    execution_id: UUID | None
    ends_ms: float
    now_ms: float


@dataclass(frozen=True, slots=True)
class Hold:
    """What is kept on one worker, from `start_ms` until `end_ms`. Whoever fits all that is not None may have it."""

    slots: int
    resources: Mapping[str, int] = field(default_factory=dict)
    start_ms: float = -math.inf
    end_ms: float = math.inf
    tenant: int | None = None
    queue: str | None = None
    job_id: UUID | None = None
    execution_id: UUID | None = None

    def allows(self, tenant: int, queue: str, job_id: UUID, execution_id: UUID | None = None) -> bool:
        return (
            self.tenant in (None, tenant)
            and self.queue in (None, queue)
            and self.job_id in (None, job_id)
            and self.execution_id in (None, execution_id)
        )

    def less(self, demand: Demand) -> Hold:
        """With one place of it in use by whom it is for."""
        if demand.exclusive:
            return replace(self, slots=0, resources={})
        left = {name: max(0, n - demand.resources.get(name, 0)) for name, n in self.resources.items()}
        return replace(self, slots=max(0, self.slots - 1), resources=left)


def kept_from(holds: Iterable[Hold], who: Who) -> list[Amounts]:
    """What an execution must leave alone, at each instant of its life at which that changes."""
    blocking = [
        hold
        for hold in holds
        if hold.start_ms < who.ends_ms
        and hold.end_ms > who.now_ms
        and not hold.allows(who.tenant, who.queue, who.job_id, who.execution_id)
    ]
    return [_sum(h for h in blocking if h.start_ms <= at < h.end_ms) for at in {_begin(h, who) for h in blocking}]


def _begin(hold: Hold, who: Who) -> float:
    return max(hold.start_ms, who.now_ms)


def _sum(holds: Iterable[Hold]) -> Amounts:
    slots, resources = 0, dict[str, int]()
    for hold in holds:
        slots += hold.slots
        for name, n in hold.resources.items():
            resources[name] = resources.get(name, 0) + n
    return slots, resources


def used(
    holds: Sequence[Hold], demand: Demand, *, tenant: int, queue: str, job_id: UUID, execution_id: UUID | None
) -> tuple[Hold, ...]:
    """The holds once an execution has its place: it counts against the first that is for it."""
    found = list(holds)
    for n, hold in enumerate(found):
        if hold.slots and hold.allows(tenant, queue, job_id, execution_id):
            found[n] = hold.less(demand)
            break
    return tuple(found)
