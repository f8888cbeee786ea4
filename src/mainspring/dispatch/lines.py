"""Lines as a dispatcher remembers them: which may have queued executions, and where the next claim starts.

A line is the set of queued executions with the same queue, demands and limit keys. Executions of one line differ only
in rank, so a claim looks at lines, not at single executions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from mainspring.domain.placement.demand import Demand, can_run
from mainspring.domain.placement.functions import FunctionSet
from mainspring.store.claims import LINE_START, Position
from mainspring.store.lines import LineRow
from mainspring.store.sessions import Session

MIN_BATCH = 32
MAX_KNOWN_LINES = 20_000
MAX_CACHED_PROFILES = 200
_FIRST_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """What decides which lines a worker can run; workers with equal profiles are interchangeable."""

    tenant: int | None  # None: every tenant's
    queues: tuple[str, ...]
    kinds: frozenset[str]
    labels: tuple[tuple[str, str], ...]
    functions: FunctionSet | None = None  # compared by its id; None: not stated, so any
    reserved_line: int | None = None  # starvation: the worker takes only from this line

    def can_run(self, line: Line) -> bool:
        """Whether tenant, kind, function and labels match. Ignores the queue: a worker may help other queues."""
        if self.tenant not in (None, line.tenant) or self.reserved_line not in (None, line.line_id):
            return False
        return can_run(line.demand, self.kinds, dict(self.labels), self.functions)


def profile_of(session: Session) -> WorkerProfile:
    tenant = None if session.shared else session.tenant
    labels = tuple(sorted(session.labels.items()))
    return WorkerProfile(tenant, session.queues, session.kinds, labels, session.functions)


@dataclass(slots=True, eq=False)
class Line:
    """One line and the state of its claims."""

    line_id: int
    tenant: int
    queue: str
    demand: Demand
    limit_id: int
    rate_id: int
    after: Position = LINE_START
    lowest_queued: int | None = None  # the lowest rank queued since the last claim began
    batch: int = MIN_BATCH  # how many executions the next claim asks for
    at_limit: bool = False  # nothing starts until a slot of the limit is free
    freed: int = 0  # how often a slot of the limit became free
    not_before: float = 0.0  # when the rate allows the next start, by the monotonic clock
    asked: Demand = field(init=False)  # by the job; `demand` has the requirements of the queue as well
    _runnable: dict[WorkerProfile, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.asked = self.demand

    def require(self, demand: Demand) -> None:
        """Set what the line demands under the present settings."""
        if demand != self.demand:
            self.demand = demand
            self._runnable.clear()

    @property
    def limited(self) -> bool:
        return bool(self.limit_id or self.rate_id)

    def runnable_by(self, profile: WorkerProfile) -> bool:
        known = self._runnable.get(profile)
        if known is None:
            if len(self._runnable) > MAX_CACHED_PROFILES:
                self._runnable.clear()
            known = self._runnable[profile] = profile.can_run(self)
        return known

    def served_by(self, profile: WorkerProfile) -> bool:
        """Whether workers of this profile can run the line and have its queue as one of their own."""
        return self.queue in profile.queues and self.runnable_by(profile)

    def begin_claim(self) -> Position:
        """Return where a claim starts, and track what is queued while it runs."""
        self.lowest_queued = None
        return self.after

    def advance(self, rank: int, execution_id: UUID) -> None:
        """Record that a claim took everything up to here; executions queued meanwhile may have lower ranks."""
        self.after = (rank, execution_id)
        if self.lowest_queued is not None:
            self.rewind(self.lowest_queued)

    def rewind(self, rank: int) -> None:
        if rank <= self.after[0]:
            self.after = (rank, _FIRST_ID)


class KnownLines:
    """Lines this dispatcher has seen. Only hints: the claim statement decides.

    A line is *fresh* while it may have queued executions: after a NOTIFY, a full claim or a slow poll.
    """

    def __init__(self, demand: Callable[[int, str, Demand], Demand] = lambda tenant, queue, asked: asked) -> None:
        self._demand = demand  # adds what the settings of a tenant and queue require
        self._lines: dict[int, Line] = {}
        self._by_limit: dict[int, set[Line]] = {}
        self._unknown: set[int] = set()  # ids from notifications that have not been read yet
        self.fresh: set[Line] = set()
        self.named: set[Line] = set()  # fresh only because the queue engine has named executions of them

    def get(self, line_id: int) -> Line | None:
        return self._lines.get(line_id)

    @property
    def unknown(self) -> list[int]:
        return list(self._unknown)

    def add(self, asked: Iterable[int], rows: Iterable[LineRow]) -> None:
        """Add the lines read for the ids `asked`; ids without a row are dropped."""
        self._unknown.difference_update(asked)
        for row in rows:
            if row.line_id in self._lines:
                continue
            line = Line(row.line_id, row.tenant, row.queue, row.demand, row.limit_id, row.rate_id)
            line.require(self._demand(line.tenant, line.queue, line.asked))
            self._lines[row.line_id] = line
            self.fresh.add(line)
            for limit_id in (row.limit_id, row.rate_id):
                if limit_id:
                    self._by_limit.setdefault(limit_id, set()).add(line)

    def apply_settings(self) -> None:
        """Settings have changed: set again what each line demands."""
        for line in self._lines.values():
            line.require(self._demand(line.tenant, line.queue, line.asked))

    def mark_queued(self, line_id: int, rank: int) -> None:
        """Record that an execution of this rank was queued."""
        line = self._lines.get(line_id)
        if line is None:
            if line_id:
                self._unknown.add(line_id)
            return
        line.lowest_queued = rank if line.lowest_queued is None else min(line.lowest_queued, rank)
        line.rewind(rank)
        self.fresh.add(line)
        self.named.discard(line)

    def mark_named(self, line: Line) -> None:
        """Record that the queue engine has named executions of this line."""
        if line not in self.fresh:
            self.fresh.add(line)
            self.named.add(line)

    def served_named(self, line: Line) -> None:
        """Record that all named executions of this line were claimed."""
        if line in self.named:
            self.named.discard(line)
            self.fresh.discard(line)

    def refresh(self, queued: dict[int, int]) -> None:
        """Take over what the slow poll found: non-empty lines with their lowest ranks."""
        for line_id, rank in queued.items():
            if (line := self._lines.get(line_id)) is not None:
                line.at_limit = False
            self.mark_queued(line_id, rank)
        if len(self._lines) > MAX_KNOWN_LINES:
            self._forget_empty()

    def _forget_empty(self) -> None:
        """Limit keys built from params make lines without bound; a forgotten line is read again when needed."""
        self.named &= self.fresh
        for line in [line for line in self._lines.values() if line not in self.fresh]:
            del self._lines[line.line_id]
            for limit_id in filter(None, (line.limit_id, line.rate_id)):
                self._by_limit[limit_id].discard(line)
                if not self._by_limit[limit_id]:
                    del self._by_limit[limit_id]

    def reopen(self, limit_id: int) -> None:
        """Record that a slot of a limit key is free, or that the limit has changed."""
        for line in self._by_limit.get(limit_id, ()):
            line.at_limit = False
            line.freed += 1
            line.not_before = 0.0
