"""Which execution goes to which worker. Pure.

Within a tenant executions go by rank, between tenants by fair share. A line whose next execution fits nobody, or whose
limit is reached, is left out from there on: it never blocks another.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

from mainspring.dispatch.fairness import Shares
from mainspring.dispatch.reserved_capacity import Hold, Who, kept_from, used
from mainspring.domain.placement.demand import Demand, has_amounts
from mainspring.domain.placement.resources import COMMON

Stop = Literal["empty", "more", "no room", "full"]


@dataclass(slots=True, eq=False)
class Room:
    """What a waiting worker has left."""

    session_id: UUID
    slots: int
    free: int
    resources: Mapping[str, int] = field(default_factory=dict)
    holds: Sequence[Hold] = ()  # what is kept of it for somebody

    @property
    def load(self) -> float:
        return 1 - self.free / self.slots

    def fits(self, demand: Demand, who: Who | None = None) -> bool:
        if self.free <= 0 or (demand.exclusive and self.free < self.slots):
            return False
        if self.holds and who is not None and not self._leaves(demand, who):
            return False
        return not demand.resources or has_amounts(demand.resources, self.resources)

    def _leaves(self, demand: Demand, who: Who) -> bool:
        """Whether what is kept for others stays free."""
        for slots, resources in kept_from(self.holds, who):
            if self.free - slots <= 0 or (demand.exclusive and slots):
                return False
            if any(self.resources.get(name, 0) - n < resources.get(name, 0) for name, n in demand.resources.items()):
                return False
        return True

    def give(self, demand: Demand, who: Who | None = None) -> None:
        if self.holds and who is not None:
            self.holds = used(
                self.holds, demand, tenant=who.tenant, queue=who.queue, job_id=who.job_id, execution_id=who.execution_id
            )
        self.free = 0 if demand.exclusive else self.free - 1
        if demand.resources:
            left = dict(self.resources)
            for name, amount in demand.resources.items():
                left[name] -= amount
            self.resources = left


@dataclass(slots=True, eq=False)
class Gate:
    """A limit that several lines may share: so many more may start."""

    left: int


@dataclass(slots=True, eq=False)
class Pending:
    """The best executions of one line, and the workers that can run them."""

    line_id: int
    tenant: int
    demand: Demand
    rows: Sequence[tuple[int, UUID]]  # rank and id, in order
    rooms: Sequence[Room]
    more: bool = False  # there may be more behind the last row
    packs: bool = False  # fill the fullest worker first
    gates: Sequence[Gate] = ()
    who: Who | None = None  # set where something is kept for somebody
    tried: int = 0  # rows that were given a worker
    stop: Stop = "empty"


class Match(NamedTuple):
    execution_id: UUID
    session_id: UUID
    line_id: int


def match(pending: Iterable[Pending], shares: Shares) -> list[Match]:
    """Gives executions to workers until nothing fits. Fills in `tried` and `stop` of each line."""
    heads: dict[int, list[tuple[int, UUID, int, Pending]]] = {}
    for n, line in enumerate(pending):
        if line.rows:
            heads.setdefault(line.tenant, []).append((*line.rows[0], n, line))
    for heap in heads.values():
        heapq.heapify(heap)
    shares.begin(heads)
    seats: dict[int, _Seats] = {}
    found: list[Match] = []
    while heads:
        tenant = shares.next(heads)
        heap = heads[tenant]
        _, execution_id, n, line = heap[0]
        room = _room_for(line, seats)
        if room is None:
            heapq.heappop(heap)
        else:
            found.append(Match(execution_id, room.session_id, line.line_id))
            shares.charge(tenant)
            line.tried += 1
            if line.tried < len(line.rows):
                heapq.heapreplace(heap, (*line.rows[line.tried], n, line))
            elif line.more:
                line.stop = "more"
                break  # what comes next may be in this line: nobody knows, so nothing else may go before
            else:
                heapq.heappop(heap)
        if not heap:
            del heads[tenant]
    for heap in heads.values():
        for *_, line in heap:
            line.stop = "more"
    return found


def _room_for(line: Pending, seats: dict[int, _Seats]) -> Room | None:
    """The worker for the line's next execution, with its room and the line's limits taken; None closes the line."""
    if any(gate.left <= 0 for gate in line.gates):
        line.stop = "full"
        return None
    if line.demand.plain and not line.packs and line.who is None:
        if (known := seats.get(id(line.rooms))) is None:
            known = seats[id(line.rooms)] = _Seats(line.rooms)
        room = known.next()
    else:
        room = best(line)
    if room is None:
        line.stop = "no room"
        return None
    room.give(line.demand, line.who)
    for gate in line.gates:
        gate.left -= 1
    return room


def best(line: Pending) -> Room | None:
    """The least loaded worker that fits, or the fullest one where that keeps scarce things for others."""
    score = _leftover if line.packs else _load_after
    fitting = [room for room in line.rooms if room.fits(line.demand, line.who)]
    return min(fitting, key=lambda room: score(line.demand, room), default=None)


def _leftover(demand: Demand, room: Room) -> tuple[int, int]:
    """Scarce things that would stay unused, then free slots."""
    scarce = sum(left - demand.resources.get(name, 0) for name, left in room.resources.items() if name not in COMMON)
    return scarce, room.free


def _load_after(demand: Demand, room: Room) -> float:
    """The part of the worker that would be in use, by whatever is tightest."""
    return max(
        [1 - (room.free - 1) / room.slots]
        + [amount / max(1, room.resources[name]) for name, amount in demand.resources.items()]
    )


class _Seats:
    """Workers by load, least loaded first, for executions that need nothing but a slot."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self._heap = [(room.load, n, room) for n, room in enumerate(rooms) if room.free > 0]
        heapq.heapify(self._heap)

    def next(self) -> Room | None:
        while self._heap:
            load, n, room = self._heap[0]
            if room.free <= 0:
                heapq.heappop(self._heap)
            elif room.load != load:  # it was given something meanwhile
                heapq.heapreplace(self._heap, (room.load, n, room))
            else:
                return room
        return None


def deal(rooms: Sequence[Room], most: int, *, packs: bool = False) -> list[int]:
    """Which worker (by its place, from 1) gets which of the next executions, if they need nothing but a slot."""
    if len(rooms) == 1:
        return [1] * min(rooms[0].free, most)
    if packs:
        order = sorted(range(len(rooms)), key=lambda n: rooms[n].free)
        return [n + 1 for n in order for _ in range(rooms[n].free)][:most]
    heap = [(room.load, n, room.free) for n, room in enumerate(rooms) if room.free > 0]
    heapq.heapify(heap)
    dealt: list[int] = []
    while heap and len(dealt) < most:
        _, n, free = heap[0]
        dealt.append(n + 1)
        if free > 1:
            heapq.heapreplace(heap, (1 - (free - 1) / rooms[n].slots, n, free - 1))
        else:
            heapq.heappop(heap)
    return dealt
