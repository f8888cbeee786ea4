"""Who makes room for an urgent execution: the fewest that suffice, on one worker. Pure.

Only preemptible work of the same tenant with a lower priority is asked, and only once it has run for a while: longer
each time it made room, so that it gets further between two evictions than before, and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from mainspring.dispatch.match import Room
from mainspring.dispatch.reserved_capacity import Hold, Who
from mainspring.domain.placement.demand import Demand, can_run
from mainspring.domain.placement.reservation import Place
from mainspring.store.evictions import Run

LEAST_RUN_S = 5.0
"""An attempt is left alone so long, and twice as long after each eviction."""
MOST_DOUBLED = 12
TRIED = 12
"""Among so many the smallest set is looked for; among more, one from which nobody could be left out."""
TAKES = "preempt"


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker as it is now: what it runs, and what is kept on it."""

    place: Place
    runs: Sequence[Run]
    holds: Sequence[Hold] = ()

    def room_without(self, gone: Sequence[Run]) -> Room:
        """What would be left if these were gone; those that leave already are."""
        stay = [run for run in self.runs if not run.leaving and run not in gone]
        free = 0 if any(run.demand.exclusive for run in stay) else self.place.slots - len(stay)
        resources = dict(self.place.resources)
        for run in stay:
            for name, amount in run.demand.resources.items():
                resources[name] = resources.get(name, 0) - amount
        return Room(self.place.session_id, self.place.slots, free, resources, self.holds)


def is_reached(place: Place, *, tenant: int, queue: str, demand: Demand) -> bool:
    return (
        (place.tenant == tenant or place.shared)
        and queue in place.queues
        and can_run(demand, place.kinds, place.labels)
    )


def choose(demand: Demand, who: Who, priority: int, seats: Iterable[Seat]) -> tuple[Seat, list[Run]] | None:
    """The worker, and who leaves it. None: there is room somewhere, or nobody could make it."""
    found: list[tuple[Seat, list[Run]]] = []
    for seat in seats:
        if seat.room_without(()).fits(demand, who):
            return None
        if TAKES in seat.place.takes and (victims := _fewest(demand, who, priority, seat)):
            found.append((seat, victims))
    return min(found, key=lambda choice: _cost(choice[1]), default=None)


def may_leave(run: Run, *, tenant: int, priority: int) -> bool:
    if not run.preemptible or run.leaving or run.tenant != tenant or run.priority >= priority:
        return False
    return run.ran_s >= least_run_s(run.evicted)


def least_run_s(evicted: int) -> float:
    return float(LEAST_RUN_S * 2 ** min(evicted, MOST_DOUBLED))


def _fewest(demand: Demand, who: Who, priority: int, seat: Seat) -> list[Run]:
    """The smallest set, and of those the one that loses least: the lowest priorities, the shortest time."""
    able = [run for run in seat.runs if may_leave(run, tenant=who.tenant, priority=priority)]
    able.sort(key=lambda run: (run.priority, run.ran_s))
    if not able or not seat.room_without(able).fits(demand, who):
        return []
    if len(able) <= TRIED:
        for size in range(1, len(able) + 1):
            for some in combinations(able, size):
                if seat.room_without(some).fits(demand, who):
                    return list(some)
    return _needed(demand, who, seat, able)


def _needed(demand: Demand, who: Who, seat: Seat, able: list[Run]) -> list[Run]:
    """Leaves out one after the other, the dearest first, as long as it still fits."""
    chosen = list(able)
    for run in reversed(able):
        fewer = [other for other in chosen if other is not run]
        if seat.room_without(fewer).fits(demand, who):
            chosen = fewer
    return chosen


def _cost(victims: Sequence[Run]) -> tuple[int, int, float]:
    return len(victims), max(run.priority for run in victims), sum(run.ran_s for run in victims)
