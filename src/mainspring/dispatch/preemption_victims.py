"""Chooses the attempts to evict for an urgent execution: the fewest that suffice, on one worker. Pure.

A victim is preemptible, belongs to the same tenant and has a lower priority. It must have run for a minimum time, which
doubles with each eviction, so that it gets further between two evictions than before, and finishes in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from mainspring.dispatch.match import FreeCapacity
from mainspring.dispatch.reserved_capacity import Claimant, ReservedCapacity
from mainspring.domain.placement.demand import Demand, can_run
from mainspring.domain.placement.reservation import WorkerCapacity
from mainspring.store.evictions import RunningAttempt

MIN_RUN_S = 5.0
"""An attempt is not evicted before it has run this long; doubles with each eviction."""
MAX_DOUBLINGS = 12
MAX_EXHAUSTIVE = 12
"""Up to this many candidates, the smallest set is searched for; with more, a set without a superfluous victim."""
PREEMPT = "preempt"
"""What a worker declares in `takes` when it understands preemption."""


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker with the attempts it runs and the capacity reserved on it."""

    worker: WorkerCapacity
    running: Sequence[RunningAttempt]
    reserved: Sequence[ReservedCapacity] = ()

    def free_without(self, victims: Sequence[RunningAttempt]) -> FreeCapacity:
        """Return the free capacity once these attempts, and those being evicted, have ended."""
        stay = [attempt for attempt in self.running if not attempt.leaving and attempt not in victims]
        free = 0 if any(attempt.demand.exclusive for attempt in stay) else self.worker.slots - len(stay)
        resources = dict(self.worker.resources)
        for attempt in stay:
            for name, amount in attempt.demand.resources.items():
                resources[name] = resources.get(name, 0) - amount
        return FreeCapacity(self.worker.session_id, self.worker.slots, free, resources, self.reserved)


def worker_can_run(worker: WorkerCapacity, *, tenant: int, queue: str, demand: Demand) -> bool:
    return (
        (worker.tenant == tenant or worker.shared)
        and queue in worker.queues
        and can_run(demand, worker.kinds, worker.labels, worker.functions)
    )


def choose_victims(
    demand: Demand, claimant: Claimant, priority: int, loads: Iterable[WorkerLoad]
) -> tuple[WorkerLoad, list[RunningAttempt]] | None:
    """Return a worker and its victims. None: some worker has free capacity, or no eviction would free enough."""
    found: list[tuple[WorkerLoad, list[RunningAttempt]]] = []
    for load in loads:
        if load.free_without(()).fits(demand, claimant):
            return None
        if PREEMPT in load.worker.takes and (victims := _fewest(demand, claimant, priority, load)):
            found.append((load, victims))
    return min(found, key=lambda choice: _cost(choice[1]), default=None)


def may_evict(attempt: RunningAttempt, *, tenant: int, priority: int) -> bool:
    """Whether an execution of this tenant and priority may evict the attempt."""
    if not attempt.preemptible or attempt.leaving or attempt.tenant != tenant or attempt.priority >= priority:
        return False
    return attempt.ran_s >= min_run_s(attempt.evicted)


def min_run_s(evicted: int) -> float:
    return float(MIN_RUN_S * 2 ** min(evicted, MAX_DOUBLINGS))


def _fewest(demand: Demand, claimant: Claimant, priority: int, load: WorkerLoad) -> list[RunningAttempt]:
    """Return the smallest sufficient set; among equals, the lowest priorities and the shortest time lost."""
    evictable = [attempt for attempt in load.running if may_evict(attempt, tenant=claimant.tenant, priority=priority)]
    evictable.sort(key=lambda attempt: (attempt.priority, attempt.ran_s))
    if not evictable or not load.free_without(evictable).fits(demand, claimant):
        return []
    if len(evictable) <= MAX_EXHAUSTIVE:
        for size in range(1, len(evictable) + 1):
            for some in combinations(evictable, size):
                if load.free_without(some).fits(demand, claimant):
                    return list(some)
    return _without_superfluous(demand, claimant, load, evictable)


def _without_superfluous(
    demand: Demand, claimant: Claimant, load: WorkerLoad, evictable: list[RunningAttempt]
) -> list[RunningAttempt]:
    """Spare victims one after the other, the costliest first, while the rest still suffices."""
    chosen = list(evictable)
    for attempt in reversed(evictable):
        fewer = [other for other in chosen if other is not attempt]
        if load.free_without(fewer).fits(demand, claimant):
            chosen = fewer
    return chosen


def _cost(victims: Sequence[RunningAttempt]) -> tuple[int, int, float]:
    return len(victims), max(attempt.priority for attempt in victims), sum(attempt.ran_s for attempt in victims)
