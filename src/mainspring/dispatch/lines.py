"""What a dispatcher remembers of lines: where something may be queued, and from where on to look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.domain.placement.demand import Demand, can_run
from mainspring.store.claims import START, Place
from mainspring.store.lines import LineRow
from mainspring.store.sessions import Session

SMALL = 32
MOST_KNOWN = 20_000
_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Profile:
    """Workers with the same profile can run the same lines."""

    tenant: int | None  # None: every tenant's
    queues: tuple[str, ...]
    kinds: frozenset[str]
    labels: tuple[tuple[str, str], ...]
    kept: int | None = None  # for this line only, until it has been served

    def reaches(self, line: Line) -> bool:
        """Whether the line's tenant, kind and labels are right; the queue is another matter."""
        if self.tenant not in (None, line.tenant) or self.kept not in (None, line.line_id):
            return False
        return can_run(line.demand, self.kinds, dict(self.labels))


def profile_of(session: Session) -> Profile:
    tenant = None if session.shared else session.tenant
    return Profile(tenant, session.queues, session.kinds, tuple(sorted(session.labels.items())))


@dataclass(slots=True, eq=False)
class Line:
    """A line is *fresh* while something may be in it: since it was told so, or since a claim got all it asked for."""

    line_id: int
    tenant: int
    queue: str
    demand: Demand
    limit_id: int
    rate_id: int
    after: Place = START
    heard: int | None = None  # the lowest rank told of since the last claim began
    asked: int = SMALL
    full: bool = False  # a limit is reached: nothing starts until a slot is free
    freed: int = 0  # how often we were told that one is
    not_before: float = 0.0  # the rate allows the next start then, by the monotonic clock
    _reached: dict[Profile, bool] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        return bool(self.limit_id or self.rate_id)

    def reached_by(self, profile: Profile) -> bool:
        known = self._reached.get(profile)
        if known is None:
            if len(self._reached) > 200:
                self._reached.clear()
            known = self._reached[profile] = profile.reaches(self)
        return known

    def begin(self) -> Place:
        """A claim begins: from where on."""
        self.heard = None
        return self.after

    def passed(self, rank: int, execution_id: UUID) -> None:
        """A claim took everything up to here; what was told of meanwhile may lie before."""
        self.after = (rank, execution_id)
        if self.heard is not None:
            self.lower(self.heard)

    def lower(self, rank: int) -> None:
        if rank <= self.after[0]:
            self.after = (rank, _FIRST_ID)


class LineBook:
    """Every line this dispatcher has heard of. Only hints: the claim sees for itself."""

    def __init__(self) -> None:
        self._known: dict[int, Line] = {}
        self._by_limit: dict[int, set[Line]] = {}
        self._told: set[int] = set()  # lines we have heard of, and know nothing about
        self.fresh: set[Line] = set()

    def learn(self, asked: Iterable[int], rows: Iterable[LineRow]) -> None:
        """What became of a look for unknown lines: those that are not there any more are forgotten."""
        self._told.difference_update(asked)
        for row in rows:
            if row.line_id in self._known:
                continue
            line = Line(row.line_id, row.tenant, row.queue, row.demand, row.limit_id, row.rate_id)
            self._known[row.line_id] = line
            self.fresh.add(line)
            for limit_id in (row.limit_id, row.rate_id):
                if limit_id:
                    self._by_limit.setdefault(limit_id, set()).add(line)

    def known(self, line_id: int) -> Line | None:
        return self._known.get(line_id)

    @property
    def unknown(self) -> list[int]:
        return list(self._told)

    def tell(self, line_id: int, rank: int) -> None:
        """Something was queued in a line."""
        line = self._known.get(line_id)
        if line is None:
            if line_id:
                self._told.add(line_id)
            return
        line.heard = rank if line.heard is None else min(line.heard, rank)
        line.lower(rank)
        self.fresh.add(line)

    def found(self, queued: dict[int, int]) -> None:
        """What a look into the database found: these lines and lowest ranks, and nothing in the others."""
        for line_id, rank in queued.items():
            if (line := self._known.get(line_id)) is not None:
                line.full = False
            self.tell(line_id, rank)
        if len(self._known) > MOST_KNOWN:
            self._forget_empty()

    def _forget_empty(self) -> None:
        """Keys made of params make lines without end; one that is told of again is learned again."""
        for line in [line for line in self._known.values() if line not in self.fresh]:
            del self._known[line.line_id]
            for limit_id in filter(None, (line.limit_id, line.rate_id)):
                self._by_limit[limit_id].discard(line)
                if not self._by_limit[limit_id]:
                    del self._by_limit[limit_id]

    def freed(self, limit_id: int) -> None:
        """A slot of a key is free, or its limit has changed."""
        for line in self._by_limit.get(limit_id, ()):
            line.full = False
            line.freed += 1
            line.not_before = 0.0
