"""Dispatch: holds the long polls of its workers and claims for them in batches.

A queue is *fresh* while something may be in it: since a NOTIFY, since a claim that took all it asked for,
or since the slow poll. Polls on queues that are not fresh wait without a query. Losing a NOTIFY costs at
most the slow poll's interval, never an execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.clock import Clock, SystemClock, millis
from mainspring.domain.errors import Conflict
from mainspring.domain.job import Definition
from mainspring.service import Loops
from mainspring.store import claims, sessions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.sessions import Session
from mainspring.telemetry import metrics

SLOW_POLL_S = 2.0
BATCH = 1000
SMALL = 32

Line = tuple[int, tuple[str, ...]]
"""What may be claimed together: a tenant and a set of queues."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A worker that waits for work."""

    session: Session
    free: int
    answer: asyncio.Future[wire.Polled]
    cancels: list[UUID] = field(default_factory=list)


class Dispatcher:
    """Matches queued executions with waiting workers of this api process."""

    def __init__(
        self, database: Database, bus: ports.Bus, definitions: Definitions, announcer: Announcer, *,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._database = database
        self._definitions = definitions
        self._announcer = announcer
        self._clock = clock or SystemClock()
        self._sessions: dict[UUID, Session] = {}
        self._waiting: dict[Line, dict[Waiting, None]] = {}
        self._polls: dict[UUID, Waiting] = {}
        self._cancelled: set[UUID] = set()
        self._fresh: set[str] = set()
        self._asked: dict[Line, int] = {}
        self._wake = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._closing = False
        self._loops = Loops("dispatcher")
        bus.subscribe(ports.QUEUED, self._hear_queued, on_gap=self._refresh)
        bus.subscribe(ports.CANCEL, self._hear_cancel, on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("claim", self._claim_step, backoff_s=0.1)
        self._loops.forever("slow poll", self._slow_poll)

    async def ready(self) -> None:
        return

    async def drain(self) -> None:
        """Sends waiting workers home, to ask another api process."""
        self._closing = True
        for waiting in list(self._polls.values()):
            self._answer(waiting, [], {})

    async def stop(self) -> None:
        await self.drain()
        await self._loops.stop()

    async def poll(self, poll: wire.Poll, *, tenant: int) -> wire.Polled:
        """Answers when there is work, a cancellation, or the wait is over."""
        session = await self._session(poll.session_id, tenant)
        if self._closing:
            return wire.Polled(executions=[], definitions={}, cancels=[])
        if old := self._polls.get(poll.session_id):
            self._answer(old, [], {})
        waiting = Waiting(session, min(poll.free, BATCH), asyncio.get_running_loop().create_future())
        self._polls[poll.session_id] = waiting
        if poll.session_id in self._cancelled:
            self._cancelled.discard(poll.session_id)
            self._loops.spawn(self._tell_cancels(waiting), "cancel")
        if waiting.free:
            line = (session.tenant, session.queues)
            self._waiting.setdefault(line, {})[waiting] = None
            if not self._fresh.isdisjoint(session.queues):
                self._wake.set()
        try:
            return await asyncio.wait_for(asyncio.shield(waiting.answer), poll.wait_s)
        except TimeoutError:
            self._withdraw(waiting)
            async with self._claiming:  # a claim under way may already have work for this worker
                return self._give_up(waiting)
        finally:
            self._withdraw(waiting)

    async def serves(self, session_id: UUID, *, tenant: int) -> bool:
        """Whether the session, ended or not, is this tenant's: nobody reports for others."""
        if (session := self._sessions.get(session_id)) is not None:
            return session.tenant == tenant
        async with self._database.connection() as connection:
            return await sessions.is_session_of(connection, tenant=tenant, session_id=session_id)

    def forget(self, session_id: UUID) -> None:
        """The session has ended: its poll, if any, is answered with nothing."""
        self._sessions.pop(session_id, None)
        self._cancelled.discard(session_id)
        if waiting := self._polls.get(session_id):
            self._answer(waiting, [], {})

    async def _session(self, session_id: UUID, tenant: int) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            async with self._database.connection() as connection:
                session = await sessions.session_by_id(connection, tenant=tenant, session_id=session_id)
            if session is None:
                raise Conflict("this session has ended; register again", code="session_ended")
            self._sessions[session_id] = session
            self._fresh.update(session.queues)
        if session.tenant != tenant:
            raise Conflict("this session has ended; register again", code="session_ended")
        return session

    # Claiming ----------------------------------------------------------------------------------------

    async def _claim_step(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        again = True
        while again:
            again = False
            for line in [line for line, waiting in self._waiting.items() if waiting]:
                async with self._claiming:
                    again |= await self._claim_line(line)

    async def _claim_line(self, line: Line) -> bool:
        """One claim for the workers of one line; whether there may be more to claim for those still waiting."""
        tenant, queues = line
        fresh = self._fresh.intersection(queues)
        waiting = list(self._waiting.get(line, ()))
        slots = deal(waiting, self._asked.get(line, SMALL))
        if not fresh or not slots:
            return False
        # Before the claim: what is queued while it runs makes its queue fresh again.
        self._fresh -= fresh
        try:
            async with self._database.hot() as connection:
                rows = await claims.claim(connection, tenant=tenant, slots=slots, queues=sorted(fresh))
        except BaseException:
            self._fresh |= fresh
            self._wake.set()
            raise
        if len(rows) == len(slots):
            self._fresh |= fresh
        # About what there was last time: a thousand slots in the statement cost a millisecond even if one is used.
        self._asked[line] = min(BATCH, max(SMALL, 4 * len(rows)))
        if rows:
            await self._hand_over(waiting, rows)
        return bool(self._fresh.intersection(queues)) and bool(self._waiting.get(line))

    async def _hand_over(self, waiting: list[Waiting], rows: list[claims.Claimed]) -> None:
        known = await self._definitions.get({(r["job_id"], r["version"]) for r in rows})
        names = {version: f"{version[0]}.{version[1]}" for version in known}
        now_ms = self._clock.now_ms()
        given: dict[UUID, list[wire.Assignment]] = {}
        used: dict[UUID, dict[str, Definition]] = {}
        for execution_id, job_id, version, attempt, session_id, fire_at, _, params in rows:
            name = names[job_id, version]
            if session_id not in given:
                given[session_id], used[session_id] = [], {}
            used[session_id][name] = known[job_id, version]
            given[session_id].append(
                wire.Assignment(
                    execution_id=execution_id, attempt=attempt, definition=name, job_id=job_id, fire_at=fire_at,
                    params=params,
                )
            )  # fmt: skip
        for w in waiting:
            if executions := given.get(w.session.session_id):
                self._answer(w, executions, used[w.session.session_id])
        self._announcer.tell("started", [row[0] for row in rows])
        metrics.START_LATENCY.observe(max(0.0, (now_ms - millis(rows[0]["due_at"])) / 1000))

    def _answer(self, waiting: Waiting, executions: list[wire.Assignment], definitions: dict[str, Definition]) -> None:
        self._withdraw(waiting)
        if not waiting.answer.done():
            waiting.answer.set_result(
                wire.Polled(executions=executions, definitions=definitions, cancels=waiting.cancels)
            )

    def _give_up(self, waiting: Waiting) -> wire.Polled:
        """The wait is over; an answer that came at the very last moment is not lost."""
        if waiting.answer.done():
            return waiting.answer.result()
        return wire.Polled(executions=[], definitions={}, cancels=waiting.cancels)

    def _withdraw(self, waiting: Waiting) -> None:
        line = (waiting.session.tenant, waiting.session.queues)
        if (group := self._waiting.get(line)) is not None:
            group.pop(waiting, None)
            if not group:
                del self._waiting[line]
        if self._polls.get(waiting.session.session_id) is waiting:
            del self._polls[waiting.session.session_id]

    # Waking ------------------------------------------------------------------------------------------

    async def _slow_poll(self) -> None:
        """The net under NOTIFY."""
        await asyncio.sleep(SLOW_POLL_S)
        queues = {queue for _, queues in self._waiting for queue in queues} - self._fresh
        if queues:
            async with self._database.connection() as connection:
                self._make_fresh(await claims.queued_queues(connection, queues=sorted(queues)))

    def _hear_queued(self, queue: str) -> None:
        self._make_fresh([queue])

    def _make_fresh(self, queues: Iterable[str]) -> None:
        self._fresh.update(queues)
        self._wake.set()

    def _refresh(self) -> None:
        self._make_fresh(queue for session in self._sessions.values() for queue in session.queues)

    def _hear_cancel(self, session: str) -> None:
        session_id = UUID(session)
        if (waiting := self._polls.get(session_id)) is not None:
            self._loops.spawn(self._tell_cancels(waiting), "cancel")
        elif session_id in self._sessions:
            self._cancelled.add(session_id)  # between two polls: the next one brings it

    async def _tell_cancels(self, waiting: Waiting) -> None:
        session = waiting.session
        async with self._database.connection() as connection:
            waiting.cancels += await sessions.session_cancels(
                connection, tenant=session.tenant, session_id=session.session_id
            )
        self._answer(waiting, [], {})


def deal(waiting: list[Waiting], most: int = BATCH) -> list[UUID]:
    """Free slots in the order they should be filled: one per worker, then the next one, so load spreads."""
    slots: list[UUID] = []
    for turn in range(max((w.free for w in waiting), default=0)):
        for w in waiting:
            if turn < w.free:
                slots.append(w.session.session_id)
                if len(slots) == most:
                    return slots
    return slots
