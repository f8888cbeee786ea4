"""The capacity of a stream: whatever order messages cross in, a worker never holds more than it has slots."""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.dispatch.lines import profile_of
from mainspring.dispatch.streams import WorkerStream
from mainspring.dispatch.waiting import WaitingWorkers
from mainspring.store.sessions import Session

STEPS = 400


def session(slots: int) -> Session:
    return Session(uuid4(), 1, slots, ("short",), frozenset(["noop"]))


class Way:
    """A stream, the messages under way in both directions, and a worker at the other end."""

    def __init__(self, slots: int, chance: random.Random) -> None:
        self.slots, self.chance = slots, chance
        self.to_worker: deque[wire.ApiMessage] = deque()
        self.to_api: deque[wire.Capacity] = deque()
        self.waiting = WaitingWorkers()
        given = session(slots)
        self.stream = WorkerStream(given, profile_of(given), self.to_worker.append, heard_at=0.0)
        self.waiting.add(self.stream)
        self.handoffs: list[int] = []  # reserved slots each
        self.claim: int | None = None  # what a claim under way may bring
        self.received = 0
        self.held: dict[UUID, bool] = {}  # whether it needs the whole worker
        self.most = 0
        self.state()

    # The api -----------------------------------------------------------------------------------------

    def reserve(self) -> None:
        if self.stream in self.waiting.free.get(self.stream.profile, ()) and not self.stream.in_claim:
            slots = self.chance.randint(1, self.stream.capacity.free)
            self.waiting.reserve(self.stream, slots)
            self.handoffs.append(slots)

    def hand_over(self) -> None:
        if self.handoffs:
            slots = self.handoffs.pop(self.chance.randrange(len(self.handoffs)))
            if used := self.chance.randint(0, slots):
                self.deliver(used)
            self.waiting.release(self.stream, slots)

    def begin_claim(self) -> None:
        if self.claim is None and self.stream in self.waiting.free.get(self.stream.profile, ()):
            self.claim, self.stream.in_claim = self.stream.capacity.free, True

    def end_claim(self) -> None:
        if self.claim is not None:
            exclusive = self.claim == self.slots and self.chance.random() < 0.3
            if count := 1 if exclusive else self.chance.randint(0, self.claim):
                self.deliver(count, exclusive=exclusive)
            elif self.chance.random() < 0.2:
                self.waiting.decline(self.stream)
                self.stream.ask_again()
            self.claim, self.stream.in_claim = None, False

    def deliver(self, count: int, *, exclusive: bool = False) -> None:
        name = "exclusive" if exclusive else "plain"
        works = [wire.Assignment(uuid4(), 1, name, uuid4(), None, None) for _ in range(count)]  # type: ignore[arg-type]
        self.waiting.deliver(self.stream, works, {}, demanding=exclusive)

    def hear(self) -> None:
        if self.to_api and self.stream.state(self.to_api.popleft()):
            self.waiting.update(self.stream)

    # The worker --------------------------------------------------------------------------------------

    def receive(self) -> None:
        if not self.to_worker:
            return
        match self.to_worker.popleft():
            case wire.Work(executions=executions):
                self.received += len(executions)
                assert not any(self.held.values()), "work arrived beside an exclusive execution"
                self.held |= {given.execution_id: given.definition == "exclusive" for given in executions}
                if any(self.held.values()):
                    assert len(self.held) == 1, "an exclusive execution arrived beside others"
                    self.state()
                self.most = max(self.most, len(self.held))
                assert len(self.held) <= self.slots
            case wire.StateCapacity():
                self.state()

    def finish(self) -> None:
        if self.held:
            self.held.pop(self.chance.choice(list(self.held)))
            if self.chance.random() < 0.7:
                self.state()

    def state(self) -> None:
        free = 0 if any(self.held.values()) else self.slots - len(self.held)
        self.to_api.append(wire.Capacity(received=self.received, free=free))

    def come_to_rest(self) -> None:
        while self.handoffs or self.claim is not None or self.to_worker or self.held:
            self.hand_over()
            self.end_claim()
            self.receive()
            self.finish()
        self.state()
        while self.to_api:
            self.hear()


@pytest.mark.parametrize("seed", range(60))
def test_a_worker_never_holds_more_than_its_slots_and_none_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    way = Way(chance.choice([1, 2, 5, 16]), chance)
    acts = [way.reserve, way.hand_over, way.begin_claim, way.end_claim, way.hear, way.receive, way.finish]
    weights = [chance.randint(1, 6) for _ in acts]
    for _ in range(STEPS):
        chance.choices(acts, weights)[0]()
    way.come_to_rest()
    assert way.most > 0
    assert (way.stream.capacity.free, way.stream.reserved) == (way.slots, 0), "a slot was lost"
    assert way.stream.is_free


def test_statements_older_than_demanding_work_do_not_count() -> None:
    way = Way(4, random.Random(1))
    way.hear()
    way.deliver(1, exclusive=True)
    assert not way.stream.is_free, "nothing more is sent until the worker has stated what is left"
    assert not way.stream.state(wire.Capacity(received=0, free=4)), "it was on its way when the work was sent"
    assert not way.stream.is_free
    assert way.stream.state(wire.Capacity(received=1, free=0))
    assert not way.stream.is_free
    assert way.stream.state(wire.Capacity(received=1, free=4)) and way.stream.is_free


def test_a_statement_of_more_than_was_sent_does_not_count() -> None:
    way = Way(4, random.Random(1))
    way.hear()
    way.deliver(2)
    assert not way.stream.state(wire.Capacity(received=3, free=4))
    assert way.stream.capacity.free == 2
    assert way.stream.state(wire.Capacity(received=2, free=1_000)) and way.stream.capacity.free == 4
