"""Moves of a tenant under virtual time: movers die, stall and overlap, and each due instant must be decided once."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

SEED = 144
TRIALS = 500
HORIZON_S, TICK_S, TAKEOVER_S = 900, 2, 10
STALL, GIVE_UP = 0.2, 0.3
INTERVALS_S = (1, 2, 5, 10, 30, 60)


@dataclass(frozen=True)
class Guards:
    """What the protocol checks. Each can be left out, to see what it prevents."""

    same_ids: bool = True  # an execution's id is computed from job and instant
    fenced_copies: bool = True  # the target refuses rows of a mover with an older epoch
    fenced_steps: bool = True  # so do suspending, resuming and activating
    compared: bool = True  # the directory is switched by compare-and-swap
    watermark: bool = True  # copied: how far the source has decided
    durable: bool = True  # the suspension survives a failover of the source


@dataclass
class Home:
    """The tenant in one cell."""

    active: bool
    through: int = 0  # every instant up to there is decided
    epoch: int = 0
    ids: set[int] = field(default_factory=set)

    def accepts(self, epoch: int, fenced: bool) -> bool:
        if fenced and epoch < self.epoch:
            return False
        self.epoch = max(self.epoch, epoch)
        return True


@dataclass
class Outcome:
    due: int = 0
    lost: int = 0
    twice: int = 0
    rejected: int = 0
    moved: int = 0
    latest_s: int = 0

    def add(self, other: Outcome) -> None:
        self.due += other.due
        self.lost += other.lost
        self.twice += other.twice
        self.rejected += other.rejected
        self.moved += other.moved
        self.latest_s = max(self.latest_s, other.latest_s)


class World:
    """One tenant with one schedule, two cells, and the directory."""

    def __init__(self, guards: Guards, rng: Random) -> None:
        self.guards, self.rng = guards, rng
        self.every = rng.choice(INTERVALS_S)
        self.now = 0
        self.source, self.target = Home(active=True), Home(active=False)
        self.on_target = False  # the directory: where the tenant is, and since which epoch
        self.epoch = 0
        self.decided: Counter[int] = Counter()
        self.outcome = Outcome()
        self._fresh = 0
        self._events: list[tuple[int, int, Iterator[int]]] = []
        self._order = 0

    def start(self, at: int, process: Iterator[int]) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, process))

    def run(self) -> Outcome:
        self.start(0, self._ticks())
        self.start(self.rng.randrange(20, 120), self._mover())
        if not self.guards.durable:
            self.start(self.rng.randrange(60, 300), self._failover())
        while self._events:
            self.now, _, process = heapq.heappop(self._events)
            pause = next(process, None)
            if pause is not None:
                self.start(self.now + pause, process)
        instants = range(self.every, HORIZON_S + 1, self.every)
        self.outcome.due = len(instants)
        self.outcome.lost = sum(instant not in self.decided for instant in instants)
        self.outcome.twice = sum(count > 1 for count in self.decided.values())
        self.outcome.moved = int(self.on_target)
        return self.outcome

    def _ticks(self) -> Iterator[int]:
        while self.now < HORIZON_S:
            self._tick(self.source)
            self._tick(self.target)
            yield TICK_S
        self._tick(self.source)
        self._tick(self.target)

    def _tick(self, home: Home) -> None:
        """Decide what is due. The id is unique in each cell; no constraint covers both."""
        now = min(self.now, HORIZON_S)
        if not home.active:
            return
        for instant in range((home.through // self.every + 1) * self.every, now + 1, self.every):
            self._fresh -= 1
            identity = instant if self.guards.same_ids else self._fresh
            if identity in home.ids:
                self.outcome.rejected += 1
                continue
            home.ids.add(identity)
            self.decided[instant] += 1
            self.outcome.latest_s = max(self.outcome.latest_s, now - instant)
        home.through = max(home.through, now)

    def _failover(self) -> Iterator[int]:
        """The source fails over to a standby that has not received the suspension."""
        self.source.active = True
        yield from ()

    def _mover(self) -> Iterator[int]:
        """A mover that may die or stall before each step. Another then repeats the move from its beginning."""
        for pause in self._steps():
            if self.now < HORIZON_S // 2 and self.rng.random() < STALL:
                self.start(self.now + TAKEOVER_S, self._mover())
                if self.rng.random() < 0.5:
                    return
                yield TAKEOVER_S + self.rng.randrange(120)
            yield pause

    def _steps(self) -> Iterator[int]:
        self.epoch += 1
        epoch, guards = self.epoch, self.guards
        if not self.on_target:
            yield 1
            if self.source.accepts(epoch, guards.fenced_steps):
                self._tick(self.source)
                self.source.active = False
            yield self.rng.randrange(1, 20)
            if not self._copy(epoch):
                return
            yield self.rng.randrange(1, 10)
            if self.now < HORIZON_S // 3 and self.rng.random() < GIVE_UP:
                if self.source.accepts(epoch, guards.fenced_steps):
                    self.source.active = True
                return
            if guards.compared and epoch != self.epoch:
                return
            self.on_target = True
            yield 1
        if self.target.accepts(epoch, guards.fenced_steps) and not self.target.active:
            self.target.active = True
            if not guards.watermark:
                self.target.through = self.now

    def _copy(self, epoch: int) -> bool:
        """Copies what is missing, and how far the source has decided. Repeating it is no error."""
        if not self.target.accepts(epoch, self.guards.fenced_copies):
            return False
        self.target.ids |= self.source.ids
        self.target.through = self.source.through
        return True


def trials(guards: Guards, count: int = TRIALS, seed: int = SEED) -> Outcome:
    total = Outcome()
    for number in range(count):
        total.add(World(guards, Random(f"{seed}/{number}")).run())
    return total


ALL = Guards()
VARIANTS: dict[str, Guards] = {
    "none": ALL,
    "epoch of copies": replace(ALL, fenced_copies=False),
    "epoch of copies, and ids from job and instant": replace(ALL, fenced_copies=False, same_ids=False),
    "epoch of the other steps": replace(ALL, fenced_steps=False),
    "compare-and-swap of the directory": replace(ALL, compared=False),
    "suspension that survives a failover": replace(ALL, durable=False),
    "copied watermark": replace(ALL, watermark=False),
}
