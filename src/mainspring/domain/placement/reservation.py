"""Assigns reservations to workers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from mainspring.domain.placement.demand import Demand, can_run
from mainspring.domain.placement.functions import FunctionSet


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """A live worker session with its capacity."""

    session_id: UUID
    tenant: int
    slots: int
    queues: frozenset[str]
    kinds: frozenset[str]
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    shared: bool
    takes: frozenset[str]
    name: str
    functions: FunctionSet | None = None  # None: not stated, so any


@dataclass(frozen=True, slots=True)
class Reservation:
    """`slots` slots, each with all of `resources`, for a tenant, one of its queues or a job, during a window."""

    reservation_id: UUID
    tenant: int
    name: str
    start_ms: float
    end_ms: float
    slots: int
    resources: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    job_id: UUID | None = None
    shared: bool = False
    workers: tuple[str, ...] = ()
    serves: str | None = None  # the queue, also for a reservation of a job
    demand: Demand | None = None  # of the job

    def overlaps(self, other: Reservation) -> bool:
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def allows(self, *, tenant: int, queue: str, job_id: UUID) -> bool:
        return self.tenant == tenant and self.queue in (None, queue) and self.job_id in (None, job_id)

    def suits(self, place: WorkerCapacity) -> bool:
        """Whether the worker is eligible, apart from its free capacity."""
        if place.tenant != self.tenant and not (place.shared and self.shared):
            return False
        if place.shared and not self.shared:
            return False
        if self.serves is not None and self.serves not in place.queues:
            return False
        demand = self.demand or Demand()
        demand = replace(demand, labels={**demand.labels, **self.labels})
        return can_run(demand, place.kinds, place.labels, place.functions)


Layout = dict[UUID, dict[UUID, int]]
"""By reservation: the number of reserved slots in each session."""


def lay_out(reservations: Iterable[Reservation], places: Iterable[WorkerCapacity]) -> Layout:
    """Assign reservations to workers, deterministically for the same input.

    Earlier reservations choose first and prefer the workers named at creation. A slot without room is not reserved.
    """
    known = sorted(places, key=lambda place: (place.name, place.session_id))
    found: Layout = {}
    laid: list[Reservation] = []
    for one in sorted(reservations, key=lambda r: (r.start_ms, r.reservation_id)):
        order = {name: n for n, name in enumerate(one.workers)}
        missing, kept = one.slots, found.setdefault(one.reservation_id, {})
        for place in sorted(known, key=lambda place: order.get(place.name, len(order))):
            if missing and one.suits(place):
                others = [(r, found[r.reservation_id].get(place.session_id, 0)) for r in laid if r.overlaps(one)]
                if n := min(missing, _fit(one, place, others)):
                    kept[place.session_id] = n
                    missing -= n
        laid.append(one)
    return found


def _fit(one: Reservation, place: WorkerCapacity, others: list[tuple[Reservation, int]]) -> int:
    """How many slots of a reservation fit on a worker beside the others reserved there at that time."""
    fit = place.slots - sum(n for _, n in others)
    for name, amount in one.resources.items():
        left = place.resources.get(name, 0) - sum(n * other.resources.get(name, 0) for other, n in others)
        fit = min(fit, left // amount)
    return max(0, fit)
