"""Workers that wait for work at this process, by session and by worker profile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

from mainspring import wire
from mainspring.dispatch.lines import Line, WorkerProfile
from mainspring.dispatch.match import FreeCapacity
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.domain.job import Definition
from mainspring.domain.placement.demand import has_amounts
from mainspring.store.sessions import Session


class WaitingWorker:
    """A worker that can be sent work. `capacity` is what it has free beyond the slots reserved for handoffs."""

    def __init__(self, session: Session, profile: WorkerProfile, capacity: FreeCapacity) -> None:
        self.session = session
        self.profile = profile
        self.capacity = capacity
        self.is_open = True
        self.in_claim = False
        self.reserved = 0  # slots reserved for handoffs
        self._pending = 0  # claims and handoffs under way that may bring it work
        self._quiet: asyncio.Event | None = None

    def could_run(self, line: Line) -> bool:
        """Whether the worker could run the line's executions once it is idle."""
        return line.served_by(self.profile) and has_amounts(line.demand.resources, self.session.resources)

    @property
    def is_free(self) -> bool:
        """Whether a claim or a handoff may count on it."""
        return self.is_open and self.capacity.free > 0

    def deliver(
        self, executions: list[wire.Assignment], definitions: dict[str, Definition], *, demanding: bool
    ) -> None:
        """Send attempts to the worker. `demanding`: some need more than a slot."""
        raise NotImplementedError

    def stop_attempts(self, cancels: list[UUID], preempts: list[wire.Preempt]) -> None:
        """Request the end of attempts."""
        raise NotImplementedError

    def decline(self) -> None:
        """Claim nothing for the worker until it asks again: its session may have ended."""
        raise NotImplementedError

    def ask_again(self) -> None:
        """Ask a declined worker for its capacity. A worker that polls states it with its next poll."""

    def close(self, *, session_ended: bool = False) -> None:
        """Notify the worker that this process sends nothing more."""
        raise NotImplementedError

    def hold(self) -> None:
        """Note that a claim or a handoff under way may bring it work."""
        self._pending += 1

    def let_go(self) -> None:
        self._pending -= 1
        if not self._pending and self._quiet is not None:
            self._quiet.set()

    @property
    def is_pending(self) -> bool:
        return self._pending > 0

    async def quiet(self) -> None:
        """Return when nothing under way can bring it work. The caller has closed it to anything new."""
        if self._pending:
            self._quiet = self._quiet or asyncio.Event()
            await self._quiet.wait()


class OpenPoll(WaitingWorker):
    """A long poll: its one answer ends it."""

    def __init__(self, session: Session, profile: WorkerProfile, capacity: FreeCapacity) -> None:
        super().__init__(session, profile, capacity)
        self.answer: asyncio.Future[wire.Polled] = asyncio.get_running_loop().create_future()
        self._cancels: list[UUID] = []
        self._preempts: list[wire.Preempt] = []

    @property
    def is_free(self) -> bool:
        # A handoff under way answers it, and whatever is claimed meanwhile would have no poll left.
        return super().is_free and (self.in_claim or not self._pending)

    def deliver(
        self, executions: list[wire.Assignment], definitions: dict[str, Definition], *, demanding: bool
    ) -> None:
        self.is_open = False
        if not self.answer.done():
            self.answer.set_result(self._build(executions, definitions))

    def stop_attempts(self, cancels: list[UUID], preempts: list[wire.Preempt]) -> None:
        self._cancels += cancels
        self._preempts += preempts

    def decline(self) -> None:
        self.close()

    def close(self, *, session_ended: bool = False) -> None:
        self.deliver([], {}, demanding=False)

    def result(self) -> wire.Polled:
        """Return the answer. At a timeout that is an empty one, unless work arrived at the last moment."""
        return self.answer.result() if self.answer.done() else self._build([], {})

    def _build(self, executions: list[wire.Assignment], definitions: dict[str, Definition]) -> wire.Polled:
        return wire.Polled(
            executions=executions, definitions=definitions, cancels=self._cancels, preempts=self._preempts
        )


class WaitingWorkers:
    """`free` holds, by profile, the workers that claims and handoffs may count on."""

    def __init__(self) -> None:
        self.closed = False
        self.by_session: dict[UUID, WaitingWorker] = {}
        self.free: dict[WorkerProfile, dict[WaitingWorker, None]] = {}

    def add(self, worker: WaitingWorker) -> None:
        self.by_session[worker.session.session_id] = worker
        self.update(worker)

    def update(self, worker: WaitingWorker) -> None:
        """Call after every change of the worker's capacity."""
        if worker.is_free:
            self.free.setdefault(worker.profile, {})[worker] = None
        else:
            self._leave_group(worker)

    def remove(self, worker: WaitingWorker) -> None:
        """Offer the worker nothing more; what is under way may still be delivered."""
        worker.is_open = False
        self.update(worker)
        if self.by_session.get(worker.session.session_id) is worker:
            del self.by_session[worker.session.session_id]

    def deliver(
        self,
        worker: WaitingWorker,
        executions: list[wire.Assignment],
        definitions: dict[str, Definition],
        *,
        demanding: bool,
    ) -> None:
        worker.deliver(executions, definitions, demanding=demanding)
        self._keep_open(worker)

    def decline(self, worker: WaitingWorker) -> None:
        worker.decline()
        self._keep_open(worker)

    def _keep_open(self, worker: WaitingWorker) -> None:
        if worker.is_open:
            self.update(worker)
        else:
            self.remove(worker)

    async def end(self, worker: WaitingWorker) -> None:
        """Close the worker's poll or stream, after what is under way for it has been delivered."""
        worker.is_open = False
        self.update(worker)
        await worker.quiet()
        self.remove(worker)
        worker.close()

    async def close(self) -> None:
        """Close every poll and stream, so that workers ask another api process."""
        self.closed = True
        await asyncio.gather(*map(self.end, list(self.by_session.values())))

    def change_profile(self, session_id: UUID, profile: WorkerProfile, session: Session | None = None) -> None:
        if (worker := self.by_session.get(session_id)) is not None:
            self._leave_group(worker)
            worker.profile, worker.session = profile, session or worker.session
            self.update(worker)

    def _leave_group(self, worker: WaitingWorker) -> None:
        if (group := self.free.get(worker.profile)) is not None:
            group.pop(worker, None)
            if not group:
                del self.free[worker.profile]

    def has_capacity(self, profile: WorkerProfile, line: Line) -> bool:
        """Whether a worker of this profile has free capacity for the line now."""
        workers = self.free.get(profile, ())
        return bool(workers) if line.demand.plain else any(worker.capacity.fits(line.demand) for worker in workers)

    # Slots for handoffs ----------------------------------------------------------------------------------

    def reserve(self, worker: WaitingWorker, slots: int) -> None:
        worker.hold()
        worker.reserved += slots
        worker.capacity.free -= slots
        self.update(worker)

    def release(self, worker: WaitingWorker, slots: int) -> None:
        """Return reserved slots; those that were used have been deducted a second time by the delivery."""
        worker.reserved -= slots
        worker.capacity.free += slots
        worker.let_go()
        self.update(worker)


class ClaimOffer:
    """The workers that one claim counts on. Meanwhile no handoff uses them."""

    def __init__(self, waiting: WaitingWorkers, reservations: ReservationCache) -> None:
        self.workers: dict[UUID, WaitingWorker] = {}
        self._waiting = waiting
        self._reservations = reservations

    def of_profile(self, profile: WorkerProfile) -> Iterator[FreeCapacity]:
        """Yield copies of the free capacity for a claim to match against."""
        for worker in self._waiting.free.get(profile, ()):
            has = worker.capacity
            if has.session_id not in self.workers:
                self.workers[has.session_id] = worker
                worker.in_claim = True
                worker.hold()
            reserved = self._reservations.of(has.session_id) if self._reservations else ()
            yield FreeCapacity(has.session_id, has.slots, has.free, has.resources, reserved, has.spot)

    def __enter__(self) -> ClaimOffer:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers.values():
            worker.in_claim = False
            worker.let_go()
