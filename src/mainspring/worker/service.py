"""The worker: polls for work, runs attempts in its slots, and tells how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mainspring import __version__, wire
from mainspring.clock import Clock, SystemClock
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition
from mainspring.service import Loops
from mainspring.worker import attempt
from mainspring.worker.capacity import detect, left
from mainspring.worker.delivery import Delivery
from mainspring.worker.executors import Executor, Work
from mainspring.worker.link import Address, ApiAway, Link, Refused, SessionEnded
from mainspring.worker.session import GuardianPipe, Session

log = structlog.get_logger()

POLL_S = 30.0
BUSY_POLL_S = 2.0
"""While something runs, so that what needs an idle worker, or more than was left, is given one soon after it is."""
SATURATED_S = 0.2
FLUSH_S = 20.0
RECALL_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How this worker presents itself."""

    address: Address
    slots: int = 8
    queues: Sequence[str] = ("short", "long")
    name: str = field(default_factory=socket.gethostname)
    labels: dict[str, str] = field(default_factory=dict)
    drain_s: float = 60.0
    resources: dict[str, int] = field(default_factory=detect)
    shared: bool = False


class Worker:
    """One worker process. It holds one session at a time; when that ends, it begins a new one."""

    def __init__(self, config: WorkerConfig, executors: dict[str, Executor], *, clock: Clock | None = None) -> None:
        self._config = config
        self._executors = executors
        self._clock = clock or SystemClock()
        self._link = Link(config.address)
        self._guardian: GuardianPipe | None = None
        self._session: Session | None = None
        self._delivery: Delivery | None = None
        self._running: dict[UUID, Work] = {}
        self._demanding = 0  # attempts that take more of this worker than a slot
        self._offering = False  # a poll is open that says what was free when it began
        self._undelivered: set[UUID] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[None] | None = None
        self._definitions: dict[str, Definition] = {}
        self._slot_freed = asyncio.Event()
        self._ready = asyncio.Event()
        self._refusal: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        self._draining = False
        self._loops = Loops("worker")

    @property
    def busy(self) -> int:
        return len(self._running)

    async def start(self) -> None:
        self._guardian = GuardianPipe()
        self._loops.forever("session", self._live)

    async def ready(self) -> None:
        await self._ready.wait()

    async def refused(self) -> Refused:
        """Returns only if the api will never take this worker: a wrong token, or another protocol."""
        return await asyncio.shield(self._refusal)

    async def drain(self) -> None:
        """Takes nothing new, finishes what it has, and what is not done in time is given back."""
        self._draining = True
        if self._session is not None:
            self._session.draining = True
        self._slot_freed.set()
        await self._recall_poll()
        if self._tasks:
            log.info("finishing what runs", executions=len(self._tasks), seconds=self._config.drain_s)
            await asyncio.wait(self._tasks, timeout=self._config.drain_s)
        if self._tasks:
            self._stop_all("preempted")
            await asyncio.wait(self._tasks)
        if self._delivery is not None and not await self._delivery.flushed(FLUSH_S):
            log.error("some results could not be delivered; the session's lease decides")
        await self._say_goodbye()

    async def stop(self) -> None:
        self._stop_all("preempted")
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._loops.stop()
        if self._delivery is not None:
            await self._delivery.stop()
        if self._session is not None:
            self._session.stop()
            await self._session.ended()
        if self._guardian is not None:
            self._guardian.close()
        await self._link.close()

    # One life ----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """From registering to the session's end; the loop around it begins anew."""
        assert self._guardian is not None
        registered = await self._begin()
        ended = asyncio.Event()
        session = self._session = Session(
            self._config.address, registered, guardian=self._guardian, running=self._held,
            on_cancel=self._cancel, on_end=ended.set,
        )  # fmt: skip
        self._delivery = Delivery(self._link, session.session_id, delivered=self._undelivered.difference_update)
        session.start()
        self._delivery.start()
        self._ready.set()
        log.info("session begins", session=str(session.session_id), slots=self._config.slots)
        polling = self._polling = asyncio.create_task(self._poll_on(session))
        waiting = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait({polling, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._draining:
                await asyncio.Event().wait()  # heartbeats go on until drain() says goodbye
            if polling.done() and (trouble := polling.exception()) is not None:
                log.error("polling failed", error=repr(trouble))
        finally:
            polling.cancel()
            waiting.cancel()
            session.stop()
        await self._give_up(session)

    async def _begin(self) -> wire.Registered:
        wait = 0.2
        while True:
            try:
                return await self._link.register(self._register())
            except ApiAway as error:
                log.warning("waiting for the api", error=str(error))
                await asyncio.sleep(random.uniform(wait / 2, wait))
                wait = min(wait * 2, 10.0)
            except Refused as error:
                self._refusal.set_result(error)
                await asyncio.Event().wait()

    async def _give_up(self, session: Session) -> None:
        """Whatever still runs belongs to others now, and they need not wait for the lease."""
        self._stop_all("lost")
        if self._tasks:
            await asyncio.wait(self._tasks)
        assert self._delivery is not None
        await self._delivery.stop()
        self._undelivered.clear()
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            await self._link.goodbye(wire.Goodbye(session_id=session.session_id, lost=True))

    def _register(self) -> wire.Register:
        return wire.Register(
            name=self._config.name, host=socket.gethostname(), version=__version__, slots=self._config.slots,
            queues=list(self._config.queues), kinds=sorted(self._executors), labels=self._config.labels,
            resources=self._config.resources, shared=self._config.shared,
        )  # fmt: skip

    async def _say_goodbye(self) -> None:
        if self._session is None:
            return
        self._session.stop()
        try:
            await self._link.goodbye(wire.Goodbye(session_id=self._session.session_id))
        except (ApiAway, SessionEnded, Refused) as error:
            log.warning("could not say goodbye; the lease ends by itself", error=str(error))

    # Polling -----------------------------------------------------------------------------------------

    async def _poll_on(self, session: Session) -> None:
        wait = 0.1
        while not self._draining:
            free = self._free()
            try:
                if free:
                    polled: wire.Polled | None = await self._ask(session, free)
                else:
                    polled = await self._poll_while_full(session)
                wait = 0.1
            except ApiAway as error:
                log.warning("the api is away", error=str(error), wait_s=round(wait, 1))
                await asyncio.sleep(random.uniform(wait / 2, wait))
                wait = min(wait * 2, 10.0)
                continue
            except (SessionEnded, Refused) as error:
                log.warning("the poll was refused", reason=str(error))
                return
            if polled is not None:
                self._take(polled, session)

    def _free(self) -> int:
        """Slots; none while an attempt has the worker to itself."""
        if self._demanding and any(work.definition.exclusive for work in self._running.values()):
            return 0
        return self._config.slots - self.busy

    def _left(self) -> dict[str, int] | None:
        if not self._demanding:
            return None
        return left(self._config.resources, (work.definition for work in self._running.values()))

    async def _ask(self, session: Session, free: int) -> wire.Polled:
        wait_s = BUSY_POLL_S if self._running else POLL_S
        self._offering = True
        try:
            return await self._link.poll(
                wire.Poll(session_id=session.session_id, free=free, wait_s=wait_s, resources=self._left())
            )
        finally:
            self._offering = False

    async def _renew_poll(self) -> None:
        """Has the api answer the open poll, which says less than there is room for now; the next one says more."""
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            if self._session is not None:
                poll = wire.Poll(session_id=self._session.session_id, free=0, wait_s=0)
                self._cancel((await self._link.poll(poll)).cancels)

    async def _recall_poll(self) -> None:
        """Has the api answer the open poll: what it was just given comes with it, and nothing after."""
        if self._session is None or self._polling is None:
            return
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            await self._link.poll(wire.Poll(session_id=self._session.session_id, free=0, wait_s=0))
        await asyncio.wait({self._polling}, timeout=RECALL_S)
        self._polling.cancel()

    async def _poll_while_full(self, session: Session) -> wire.Polled | None:
        """No slot is free: listen for cancellations only, and only until one is."""
        self._slot_freed.clear()
        freed = asyncio.create_task(self._slot_freed.wait())
        try:
            await asyncio.wait({freed}, timeout=SATURATED_S)
            if freed.done():
                return None
            poll = asyncio.create_task(self._link.poll(wire.Poll(session_id=session.session_id, free=0, wait_s=POLL_S)))
            await asyncio.wait({freed, poll}, return_when=asyncio.FIRST_COMPLETED)
            if poll.done():
                return poll.result()
            poll.cancel()  # with free=0 it could not have carried work
            return None
        finally:
            freed.cancel()

    def _take(self, polled: wire.Polled, session: Session) -> None:
        if len(self._definitions) > 10_000:
            self._definitions.clear()
        self._definitions |= polled.definitions
        self._cancel(polled.cancels)
        for assignment in polled.executions:
            assert self._guardian is not None and self._delivery is not None
            work = Work(
                assignment, self._definitions[assignment.definition], session_id=session.session_id,
                children=self._guardian,
            )  # fmt: skip
            self._running[assignment.execution_id] = work
            self._demanding += _demands(work)
            self._undelivered.add(assignment.execution_id)
            task = asyncio.create_task(self._run(work, self._delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Work, delivery: Delivery) -> None:
        started = self._clock.monotonic()
        delivery.begin(work)
        done = await attempt.execute(work, self._executors)
        del self._running[work.assignment.execution_id]
        self._demanding -= _demands(work)
        self._slot_freed.set()
        if _demands(work) and self._offering and not self._draining:
            self._offering = False
            self._loops.spawn(self._renew_poll(), "renew poll")
        delivery.end(work, attempt.tell(work, done, started=started, clock=self._clock))

    # Ending ------------------------------------------------------------------------------------------

    def _held(self) -> list[UUID]:
        """What the api should believe is ours: running, or done but not yet delivered. Called by the heartbeat."""
        return list(self._undelivered.copy())

    def _cancel(self, executions: Sequence[UUID]) -> None:
        for execution_id in executions:
            if work := self._running.get(execution_id):
                work.end("cancelled")

    def _stop_all(self, outcome: Outcome) -> None:
        for work in self._running.values():
            work.end(outcome)


def _demands(work: Work) -> bool:
    return bool(work.definition.resources) or work.definition.exclusive
