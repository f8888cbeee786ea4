"""Open long polls of workers, by session and by worker profile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from mainspring import wire
from mainspring.dispatch.lines import Line, WorkerProfile
from mainspring.dispatch.match import FreeCapacity
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.domain.job import Definition
from mainspring.domain.placement.demand import has_amounts
from mainspring.store.sessions import Session


@dataclass(slots=True, eq=False)
class OpenPoll:
    """A worker that waits for work."""

    session: Session
    profile: WorkerProfile
    capacity: FreeCapacity
    answer: asyncio.Future[wire.Polled]
    cancels: list[UUID] = field(default_factory=list)
    preempts: list[wire.Preempt] = field(default_factory=list)

    def could_run(self, line: Line) -> bool:
        """Whether the worker could run the line's executions once it is idle."""
        return line.served_by(self.profile) and has_amounts(line.demand.resources, self.session.resources)

    def result(self) -> wire.Polled:
        """Return the answer. At a timeout that is an empty one, unless work arrived at the last moment."""
        return self.answer.result() if self.answer.done() else self.build([], {})

    def build(self, executions: list[wire.Assignment], definitions: dict[str, Definition]) -> wire.Polled:
        return wire.Polled(executions=executions, definitions=definitions, cancels=self.cancels, preempts=self.preempts)


class OpenPolls:
    """`free` holds, by profile, the polls of workers with a free slot; `offered` those that a claim counts on."""

    def __init__(self) -> None:
        self.closed = False
        self.by_session: dict[UUID, OpenPoll] = {}
        self.free: dict[WorkerProfile, dict[OpenPoll, None]] = {}
        self.offered: dict[UUID, OpenPoll] = {}

    def add(self, poll: OpenPoll) -> None:
        self.by_session[poll.session.session_id] = poll
        if poll.capacity.free:
            self.free.setdefault(poll.profile, {})[poll] = None

    def remove(self, poll: OpenPoll) -> None:
        if (group := self.free.get(poll.profile)) is not None:
            group.pop(poll, None)
            if not group:
                del self.free[poll.profile]
        if self.by_session.get(poll.session.session_id) is poll:
            del self.by_session[poll.session.session_id]

    def answer(
        self,
        poll: OpenPoll,
        executions: list[wire.Assignment] | None = None,
        definitions: dict[str, Definition] | None = None,
    ) -> None:
        self.remove(poll)
        if not poll.answer.done():
            poll.answer.set_result(poll.build(executions or [], definitions or {}))

    def close(self) -> None:
        """Answer every poll with nothing, so that workers ask another api process."""
        self.closed = True
        for poll in list(self.by_session.values()):
            self.answer(poll)

    def change_profile(self, session_id: UUID, profile: WorkerProfile) -> None:
        poll = self.by_session.get(session_id)
        if poll is not None and poll in self.free.get(poll.profile, ()):
            self.remove(poll)
            poll.profile = profile
            self.add(poll)

    def has_capacity(self, profile: WorkerProfile, line: Line) -> bool:
        """Whether a worker of this profile has free capacity for the line now."""
        polls = self.free.get(profile, ())
        return bool(polls) if line.demand.plain else any(poll.capacity.fits(line.demand) for poll in polls)

    def offer(self, profile: WorkerProfile, reservations: ReservationCache) -> Iterator[FreeCapacity]:
        """Yield copies of the free capacity for a claim to match against."""
        for poll in self.free.get(profile, ()):
            has = poll.capacity
            self.offered[has.session_id] = poll  # its poll may time out while the claim runs
            reserved = reservations.of(has.session_id) if reservations else ()
            yield FreeCapacity(has.session_id, has.slots, has.free, has.resources, reserved)
