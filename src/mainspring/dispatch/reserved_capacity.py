"""Capacity reserved on a worker, and which executions may use it. Pure.

Capacity is reserved by a user's reservation for a time window, or for an urgent execution that preempted others. It
never blocks the executions it is reserved for, nor an execution that is sure to end before the window starts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from mainspring.domain.placement.demand import Demand

Amounts = tuple[int, Mapping[str, int]]
"""Slots, and resources."""


class Identity(Protocol):
    """The fields of an execution that decide which reserved capacity it may use."""

    @property
    def tenant(self) -> int: ...

    @property
    def queue(self) -> str: ...

    @property
    def job_id(self) -> UUID: ...

    @property
    def execution_id(self) -> UUID | None: ...


@dataclass(frozen=True, slots=True)
class Claimant:
    """An execution that asks for capacity: its identity, and the latest instant at which it ends."""

    tenant: int
    queue: str
    job_id: UUID
    execution_id: UUID | None
    ends_ms: float
    now_ms: float


@dataclass(frozen=True, slots=True)
class ReservedCapacity:
    """Slots and resources reserved on one worker from `start_ms` to `end_ms`.

    An execution may use them if it matches every identity field that is not None.
    """

    slots: int
    resources: Mapping[str, int] = field(default_factory=dict)
    start_ms: float = -math.inf
    end_ms: float = math.inf
    tenant: int | None = None
    queue: str | None = None
    job_id: UUID | None = None
    execution_id: UUID | None = None

    def allows(self, execution: Identity) -> bool:
        return (
            self.tenant in (None, execution.tenant)
            and self.queue in (None, execution.queue)
            and self.job_id in (None, execution.job_id)
            and self.execution_id in (None, execution.execution_id)
        )

    def minus(self, demand: Demand) -> ReservedCapacity:
        """What stays reserved once an execution with this demand uses a part of it."""
        if demand.exclusive:
            return replace(self, slots=0, resources={})
        left = {name: max(0, n - demand.resources.get(name, 0)) for name, n in self.resources.items()}
        return replace(self, slots=max(0, self.slots - 1), resources=left)


def blocked_amounts(reserved: Iterable[ReservedCapacity], claimant: Claimant) -> list[Amounts]:
    """Return what the claimant must leave free: one entry for each instant of its life at which that changes."""
    blocking = [
        one
        for one in reserved
        if one.start_ms < claimant.ends_ms and one.end_ms > claimant.now_ms and not one.allows(claimant)
    ]
    starts = {max(one.start_ms, claimant.now_ms) for one in blocking}
    return [_sum(one for one in blocking if one.start_ms <= at < one.end_ms) for at in starts]


def _sum(reserved: Iterable[ReservedCapacity]) -> Amounts:
    slots, resources = 0, dict[str, int]()
    for one in reserved:
        slots += one.slots
        for name, n in one.resources.items():
            resources[name] = resources.get(name, 0) + n
    return slots, resources


def consume(reserved: Sequence[ReservedCapacity], demand: Demand, execution: Identity) -> tuple[ReservedCapacity, ...]:
    """Return what stays reserved once the execution runs: it uses the first entry that allows it."""
    found = list(reserved)
    for n, one in enumerate(found):
        if one.slots and one.allows(execution):
            found[n] = one.minus(demand)
            break
    return tuple(found)
