"""Decides which execution goes to which worker. Pure.

Within a tenant, executions go by rank; between tenants, by fair share. A line is closed for the rest of the match when
no worker fits its next execution or when a limit is reached; it never blocks other lines.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple
from uuid import UUID

from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity, blocked_amounts, consume
from mainspring.domain.placement.demand import PREFER, SPOT, Demand, has_amounts
from mainspring.domain.placement.resources import COMMON
from mainspring.store.sessions import Session

StopReason = Literal["empty", "more", "no worker", "limit"]


@dataclass(slots=True, eq=False)
class FreeCapacity:
    """What a waiting worker has left."""

    session_id: UUID
    slots: int
    free: int
    resources: Mapping[str, int] = field(default_factory=dict)
    reserved: Sequence[ReservedCapacity] = ()
    spot: bool = False

    @property
    def load(self) -> float:
        return 1 - self.free / self.slots

    def fits(self, demand: Demand, claimant: Claimant | None = None) -> bool:
        if self.free <= 0 or (demand.exclusive and self.free < self.slots):
            return False
        if self.reserved and claimant is not None and not self._leaves_reserved(demand, claimant):
            return False
        return not demand.resources or has_amounts(demand.resources, self.resources)

    def _leaves_reserved(self, demand: Demand, claimant: Claimant) -> bool:
        """Whether the capacity reserved for other executions stays free."""
        for slots, resources in blocked_amounts(self.reserved, claimant):
            if self.free - slots <= 0 or (demand.exclusive and slots):
                return False
            if any(self.resources.get(name, 0) - n < resources.get(name, 0) for name, n in demand.resources.items()):
                return False
        return True

    def take(self, demand: Demand, claimant: Claimant | None = None) -> None:
        if self.reserved and claimant is not None:
            self.reserved = consume(self.reserved, demand, claimant)
        self.free = 0 if demand.exclusive else self.free - 1
        if demand.resources:
            left = dict(self.resources)
            for name, amount in demand.resources.items():
                left[name] -= amount
            self.resources = left


def capacity_of(session: Session, free: int, resources: Mapping[str, int]) -> FreeCapacity:
    """What a session has left, by its own account."""
    return FreeCapacity(session.session_id, session.slots, free, resources, spot=SPOT in session.labels)


@dataclass(slots=True, eq=False)
class StartBudget:
    """How many more executions a limit allows to start; several lines may share it."""

    left: int


@dataclass(slots=True, eq=False)
class LineCandidates:
    """The first executions of one line, and the workers that can run them."""

    line_id: int
    tenant: int
    demand: Demand
    rows: Sequence[tuple[int, UUID]]  # rank and id, in order
    workers: Sequence[FreeCapacity]
    more: bool = False  # the line may continue after the last row
    packs: bool = False  # fill the fullest worker first
    budgets: Sequence[StartBudget] = ()
    claimant: Claimant | None = None  # set where a worker has reserved capacity
    assigned: int = 0  # rows that were given a worker
    stop: StopReason = "empty"


class Match(NamedTuple):
    execution_id: UUID
    session_id: UUID
    line_id: int


def match(candidates: Iterable[LineCandidates], shares: Shares) -> list[Match]:
    """Assign executions to workers until nothing fits. Sets `assigned` and `stop` of each line."""
    heads: dict[int, list[tuple[int, UUID, int, LineCandidates]]] = {}
    for n, line in enumerate(candidates):
        if line.rows:
            heads.setdefault(line.tenant, []).append((*line.rows[0], n, line))
    for heap in heads.values():
        heapq.heapify(heap)
    shares.begin(heads)
    least_loaded: dict[int, _LeastLoaded] = {}
    found: list[Match] = []
    while heads:
        tenant = shares.next(heads)
        heap = heads[tenant]
        _, execution_id, n, line = heap[0]
        worker = _take_worker(line, least_loaded)
        if worker is None:
            heapq.heappop(heap)
        else:
            found.append(Match(execution_id, worker.session_id, line.line_id))
            shares.charge(tenant)
            line.assigned += 1
            if line.assigned < len(line.rows):
                heapq.heapreplace(heap, (*line.rows[line.assigned], n, line))
            elif line.more:
                line.stop = "more"
                break  # the next execution by rank may be an unread one of this line, so no other may overtake it
            else:
                heapq.heappop(heap)
        if not heap:
            del heads[tenant]
    for heap in heads.values():
        for *_, line in heap:
            line.stop = "more"
    return found


def _take_worker(line: LineCandidates, least_loaded: dict[int, _LeastLoaded]) -> FreeCapacity | None:
    """Return the worker for the line's next execution, with capacity and budgets charged; None closes the line."""
    if any(budget.left <= 0 for budget in line.budgets):
        line.stop = "limit"
        return None
    if line.demand.plain and not line.packs and line.claimant is None:
        if (order := least_loaded.get(id(line.workers))) is None:
            order = least_loaded[id(line.workers)] = _LeastLoaded(line.workers)
        worker = order.next()
    else:
        worker = best_worker(line)
    if worker is None:
        line.stop = "no worker"
        return None
    worker.take(line.demand, line.claimant)
    for budget in line.budgets:
        budget.left -= 1
    return worker


def best_worker(line: LineCandidates) -> FreeCapacity | None:
    """Return the least loaded worker that fits, or the fullest if the line packs; a spot worker if it prefers one."""
    score = _scarce_left if line.packs else _load_after
    fitting = [worker for worker in line.workers if worker.fits(line.demand, line.claimant)]
    steady = line.demand.spot == PREFER
    return min(fitting, key=lambda worker: (steady and not worker.spot, score(line.demand, worker)), default=None)


def _scarce_left(demand: Demand, worker: FreeCapacity) -> tuple[int, int]:
    """Scarce resources that would stay unused, then free slots."""
    scarce = sum(left - demand.resources.get(name, 0) for name, left in worker.resources.items() if name not in COMMON)
    return scarce, worker.free


def _load_after(demand: Demand, worker: FreeCapacity) -> float:
    """The fraction of the worker that would be in use, by its tightest resource."""
    return max(
        [1 - (worker.free - 1) / worker.slots]
        + [amount / max(1, worker.resources[name]) for name, amount in demand.resources.items()]
    )


class _LeastLoaded:
    """Workers ordered by load, for executions that need nothing but a slot."""

    def __init__(self, workers: Iterable[FreeCapacity]) -> None:
        self._heap = [(worker.load, n, worker) for n, worker in enumerate(workers) if worker.free > 0]
        heapq.heapify(self._heap)

    def next(self) -> FreeCapacity | None:
        while self._heap:
            load, n, worker = self._heap[0]
            if worker.free <= 0:
                heapq.heappop(self._heap)
            elif worker.load != load:  # another line used it
                heapq.heapreplace(self._heap, (worker.load, n, worker))
            else:
                return worker
        return None


def fill_order(workers: Sequence[FreeCapacity], most: int, *, packs: bool = False) -> list[int]:
    """Return the worker (1-based) of each of the next executions, if they need nothing but a slot."""
    if len(workers) == 1:
        return [1] * min(workers[0].free, most)
    if packs:
        order = sorted(range(len(workers)), key=lambda n: workers[n].free)
        return list(islice((n + 1 for n in order for _ in range(workers[n].free)), most))
    heap = [(worker.load, n, worker.free) for n, worker in enumerate(workers) if worker.free > 0]
    heapq.heapify(heap)
    filled: list[int] = []
    while heap and len(filled) < most:
        _, n, free = heap[0]
        filled.append(n + 1)
        if free > 1:
            heapq.heapreplace(heap, (1 - (free - 1) / workers[n].slots, n, free - 1))
        else:
            heapq.heappop(heap)
    return filled
