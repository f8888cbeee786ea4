"""Dispatch: holds the long polls of its workers and claims for them in batches.

A line is *fresh* while something may be in it: since a NOTIFY, since a claim that took all it asked for, or since the
slow poll. Lines that are not fresh, or that fit no waiting worker, are not asked for. Losing a NOTIFY costs at most the
slow poll's interval, never an execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

import msgspec

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.clock import Clock, SystemClock, millis
from mainspring.dispatch.assign_lines import adopt
from mainspring.dispatch.claim import BATCH, MOST_ROOMS, Claimer
from mainspring.dispatch.handoff import IdleWorker
from mainspring.dispatch.lines import Line, LineBook, Profile, profile_of
from mainspring.dispatch.match import Room, deal
from mainspring.dispatch.preemption import Urgency
from mainspring.dispatch.reservation_cache import Keeping
from mainspring.dispatch.settings import Settings
from mainspring.dispatch.starvation import Patience
from mainspring.domain.errors import Conflict
from mainspring.domain.job import Definition
from mainspring.domain.placement.demand import has_amounts
from mainspring.service import Loops, Service
from mainspring.store import claims, evictions, lines, sessions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions, Version
from mainspring.store.sessions import Session
from mainspring.telemetry import metrics

SLOW_POLL_S = 2.0
MOST_LINES = 20_000
MEETING = 3
"""Sessions looked up at a time: after a restart a whole fleet polls at once, and its heartbeats must get by."""
MOST_RIVALS = 50
"""Lines to look at before something may go straight to a worker; with more of them fresh, it queues."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A worker that waits for work."""

    session: Session
    profile: Profile
    room: Room
    answer: asyncio.Future[wire.Polled]
    cancels: list[UUID] = field(default_factory=list)
    preempts: list[wire.Preempt] = field(default_factory=list)


class Dispatcher(Service):
    """Matches queued executions with waiting workers of this api process."""

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        definitions: Definitions,
        announcer: Announcer,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._announcer = announcer
        self._clock = clock or SystemClock()
        self._sessions: dict[UUID, tuple[Session, Profile]] = {}
        self._waiting: dict[Profile, dict[Waiting, None]] = {}
        self._polls: dict[UUID, Waiting] = {}
        self._offered: dict[UUID, Waiting] = {}
        self._cancelled: set[UUID] = set()
        self._book = LineBook()
        self._settings = Settings()
        self._patience = Patience()
        self._keeping = Keeping(definitions, self._settings)
        self._claimer = Claimer(database, self._book, self._settings, self._keeping, clock=self._clock)
        self._urgency = Urgency(
            database, self._book, self._settings, self._keeping, definitions, kept=self._kept_for, clock=self._clock
        )
        self._look = asyncio.Event()
        self._stale = True
        self._wake = asyncio.Event()
        self._claiming = asyncio.Lock()
        self._meeting = asyncio.Semaphore(MEETING)
        self._closing = False
        self._timer: asyncio.Handle = asyncio.get_running_loop().call_soon(lambda: None)
        self._loops = Loops("dispatcher")
        bus.subscribe(ports.QUEUED, self._hear_queued, on_gap=self._look.set)
        bus.subscribe(ports.FREED, self._hear_freed, on_gap=lambda: None)
        bus.subscribe(ports.SETTINGS, self._hear_settings, on_gap=lambda: None)
        bus.subscribe(ports.CANCEL, self._hear_cancel, on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("claim", self._claim_step, backoff_s=0.1)
        self._loops.forever("slow poll", self._slow_poll)
        self._loops.forever("make room", self._urgency.step)

    async def drain(self) -> None:
        """Sends waiting workers home, to ask another api process."""
        self._closing = True
        for waiting in list(self._polls.values()):
            self._answer(waiting, [], {})

    async def stop(self) -> None:
        await self.drain()
        self._timer.cancel()
        await self._loops.stop()

    async def poll(self, poll: wire.Poll, *, tenant: int) -> wire.Polled:
        """Answers when there is work, a cancellation, or the wait is over."""
        session, profile = await self._session(poll.session_id, tenant)
        if self._closing:
            return wire.Polled(executions=[], definitions={}, cancels=[])
        if old := self._polls.get(poll.session_id):
            await self._relieve(old)
        resources = session.resources if poll.resources is None else poll.resources
        room = Room(session.session_id, session.slots, min(poll.free, session.slots, BATCH), resources)
        waiting = Waiting(session, profile, room, asyncio.get_running_loop().create_future())
        self._polls[poll.session_id] = waiting
        if poll.session_id in self._cancelled:
            self._cancelled.discard(poll.session_id)
            self._loops.spawn(self._tell_cancels(waiting), "cancel")
        if room.free:
            self._waiting.setdefault(profile, {})[waiting] = None
            self._claimer.reopen_capped()
            if self._book.fresh:
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
        if (known := self._sessions.get(session_id)) is not None:
            return known[0].tenant == tenant
        async with self._database.connection() as connection:
            return await sessions.is_session_of(connection, tenant=tenant, session_id=session_id)

    def forget(self, session_id: UUID) -> None:
        """The session has ended: its poll, if any, is answered with nothing."""
        self._sessions.pop(session_id, None)
        self._patience.forget(session_id)
        self._cancelled.discard(session_id)
        if waiting := self._polls.get(session_id):
            self._answer(waiting, [], {})

    @asynccontextmanager
    async def reserve_worker(self, line_id: int, *, tenant: int) -> AsyncIterator[IdleWorker | None]:
        """A worker for something new in a line, if nothing else waits for one; see ports.DirectHandoff."""
        waiting = None if self._claiming.locked() else self._first_free(line_id, tenant)
        if waiting is None:
            yield None
            return
        async with self._claiming:
            session_id = waiting.room.session_id
            self._offered = {session_id: waiting}
            yield IdleWorker(session_id, self._hand_over)

    def _first_free(self, line_id: int, tenant: int) -> Waiting | None:
        line = self._book.known(line_id)
        if line is None or line.tenant != tenant or not self._claimer.is_plain(line):
            return None
        if self._book.unknown or self._stale or self._closing or self._keeping or self._settings.of(line).paused:
            return None
        serving = [p for p in self._waiting if line.queue in p.queues and line.reached_by(p)]
        if self._has_rivals(serving):
            return None
        free = list(islice((w for p in serving for w in self._waiting[p]), MOST_ROOMS))
        turns = deal([w.room for w in free], 1, packs=self._settings.of(line).packs(line.demand))
        return free[turns[0] - 1] if turns else None

    def _has_rivals(self, profiles: list[Profile]) -> bool:
        """Whether something that these workers could take may be queued already."""
        fresh = self._book.fresh
        if len(fresh) > MOST_RIVALS:
            return True
        return any(r.queue in p.queues and r.reached_by(p) for r in fresh if not r.full for p in profiles)

    async def _session(self, session_id: UUID, tenant: int) -> tuple[Session, Profile]:
        known = self._sessions.get(session_id)
        if known is None:
            async with self._meeting, self._database.connection() as connection:
                session = await sessions.session_by_id(connection, tenant=tenant, session_id=session_id)
            if session is None:
                raise Conflict("this session has ended; register again", code="session_ended")
            known = self._sessions[session_id] = (session, profile_of(session))
            self._look.set()
        if known[0].tenant != tenant:
            raise Conflict("this session has ended; register again", code="session_ended")
        return known

    # Claiming ----------------------------------------------------------------------------------------

    async def _claim_step(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        try:
            while await self._claim_all():
                pass
        except BaseException:
            self._wake.set()
            raise
        if self._keeping.preemption and self._book.fresh:
            self._urgency.look()
        self._timer.cancel()
        if (at := self._claimer.next_start()) is not None:
            wait_s = max(0.0, at - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)

    async def _claim_all(self) -> bool:
        """One claim for each set of lines that compete for workers; whether another round may find more."""
        await self._learn()
        again = False
        for plan in self._claimer.plan(list(self._waiting), self._has_room):
            async with self._claiming:
                self._offered.clear()
                rows = await self._claimer.claim(plan, self._rooms)
                if rows:
                    await self._hand_over(rows)
                for session_id in self._claimer.unlucky:
                    self._answer(self._offered[session_id], [], {})
                again |= bool(rows or self._claimer.unlucky) or not self._book.fresh.issuperset(plan.lines)
        return again

    async def _relieve(self, waiting: Waiting) -> None:
        """Sends a poll home; what a claim under way has for it goes with it, and nothing after."""
        self._withdraw(waiting)
        async with self._claiming:
            self._answer(waiting, [], {})

    async def _learn(self) -> None:
        """Reads what this dispatcher has only heard of: lines, and changed settings."""
        if unknown := self._book.unknown:
            async with self._database.connection() as connection:
                self._book.learn(unknown, await lines.lines_by_id(connection, line_ids=unknown))
        if self._stale:
            self._stale = False
            try:
                await self._settings.load(self._database)
                await self._keeping.load(self._database)
            except BaseException:
                self._stale = True
                raise
            self._claimer.shares.weights = self._settings.weights
            self._claimer.reopen_capped()

    def _has_room(self, profile: Profile, line: Line) -> bool:
        waiting = self._waiting.get(profile, ())
        return bool(waiting) if line.demand.plain else any(w.room.fits(line.demand) for w in waiting)

    def _rooms(self, profile: Profile) -> Iterator[Room]:
        """Room to match with; what a worker really gets shows when it is claimed."""
        for w in self._waiting.get(profile, ()):
            self._offered[w.room.session_id] = w  # its wait may end while the claim is under way
            holds = self._keeping.of(w.room.session_id) if self._keeping else ()
            yield Room(w.room.session_id, w.room.slots, w.room.free, w.room.resources, holds)

    async def _hand_over(self, rows: list[claims.Claimed]) -> None:
        if self._keeping:
            self._keeping.started(rows)
        versions = {(row[1], row[2]) for row in rows}
        known = await self._definitions.get(versions)
        names = {version: f"{version[0]}.{version[1]}" for version in versions}
        if self._settings.bounded:
            self._hold_to_bounds(rows, known, names)
        now_ms = self._clock.now_ms()
        given: dict[UUID, list[wire.Assignment]] = {}
        used: dict[UUID, dict[str, Definition]] = {}
        for execution_id, job_id, version, attempt, session_id, fire_at, _, params, *_ in rows:
            name = names[job_id, version]
            if session_id not in given:
                given[session_id], used[session_id] = [], {}
            used[session_id][name] = known[job_id, version]
            given[session_id].append(wire.Assignment(execution_id, attempt, name, job_id, fire_at, params))
        for session_id, executions in given.items():
            self._answer(self._offered[session_id], executions, used[session_id])
        self._announcer.tell("started", [row[0] for row in rows])
        metrics.START_LATENCY.observe(max(0.0, (now_ms - millis(rows[0]["due_at"])) / 1000))

    def _hold_to_bounds(
        self, rows: list[claims.Claimed], known: dict[Version, Definition], names: dict[Version, str]
    ) -> None:
        """Timeouts as their queues allow them now. Workers keep definitions by name: another timeout, another name."""
        for row in rows:
            version = row["job_id"], row["version"]
            definition = known[version]
            timeout_s = self._settings.timeout_s(self._book.known(row["line_id"]), definition)
            if timeout_s != definition.timeout_s:
                known[version] = msgspec.structs.replace(definition, timeout_s=timeout_s, timed=True)
                names[version] = f"{names[version]}.{timeout_s:g}"

    def _answer(self, waiting: Waiting, executions: list[wire.Assignment], definitions: dict[str, Definition]) -> None:
        self._withdraw(waiting)
        if not waiting.answer.done():
            waiting.answer.set_result(
                wire.Polled(
                    executions=executions, definitions=definitions, cancels=waiting.cancels, preempts=waiting.preempts
                )
            )

    def _give_up(self, waiting: Waiting) -> wire.Polled:
        """The wait is over; an answer that came at the very last moment is not lost."""
        if waiting.answer.done():
            return waiting.answer.result()
        return wire.Polled(executions=[], definitions={}, cancels=waiting.cancels, preempts=waiting.preempts)

    def _withdraw(self, waiting: Waiting) -> None:
        if (group := self._waiting.get(waiting.profile)) is not None:
            group.pop(waiting, None)
            if not group:
                del self._waiting[waiting.profile]
        if self._polls.get(waiting.session.session_id) is waiting:
            del self._polls[waiting.session.session_id]

    # Waking ------------------------------------------------------------------------------------------

    async def _slow_poll(self) -> None:
        """The net under NOTIFY; also the first look for a new session, and after a gap."""
        try:
            await asyncio.wait_for(self._look.wait(), SLOW_POLL_S)
        except TimeoutError:
            if not self._polls:
                return
        self._look.clear()
        try:
            async with self._database.connection() as connection:
                found = await claims.queued_lines(connection, limit=MOST_LINES)
            if 0 in found:
                await adopt(self._database)
        except BaseException:
            self._look.set()
            raise
        self._stale = True
        self._book.found(found)
        self._be_patient()
        self._wake.set()

    def _be_patient(self) -> None:
        """Keeps a worker for each line that has long been too large for what any worker has left."""
        tight = {line for line in self._book.fresh if not line.demand.plain and self._is_tight(line)}
        for session_id in self._patience.let_go(tight):
            self._keep(session_id, None)
        now = self._clock.monotonic()
        for line in self._patience.overdue(tight, lambda line: self._settings.of(line).patience_s, now):
            able = [w for w in self._polls.values() if w.profile.kept is None and _could_run(w, line)]
            if able:
                chosen = max(able, key=lambda w: w.room.free).session.session_id
                self._patience.keep(line, chosen)
                self._keep(chosen, line)

    def _is_tight(self, line: Line) -> bool:
        if line.full or self._settings.of(line).paused:
            return False
        return not any(
            line.queue in profile.queues and line.reached_by(profile) and self._has_room(profile, line)
            for profile in self._waiting
        )

    def _keep(self, session_id: UUID, line: Line | None) -> None:
        """From now on the worker takes only from this line; None: from any again."""
        if (known := self._sessions.get(session_id)) is None:
            return
        profile = replace(known[1], kept=None if line is None else line.line_id)
        self._sessions[session_id] = (known[0], profile)
        waiting = self._polls.get(session_id)
        if waiting is not None and waiting in self._waiting.get(waiting.profile, ()):
            self._withdraw(waiting)
            waiting.profile = profile
            self._waiting.setdefault(profile, {})[waiting] = None
            self._polls[session_id] = waiting

    def _hear_queued(self, payload: str) -> None:
        """`<line> <rank>`; an older program says only the queue, and then there is work without a line."""
        line_id, _, rank = payload.partition(" ")
        if not rank or line_id == "0":
            self._look.set()
            return
        self._book.tell(int(line_id), int(rank))
        self._wake.set()

    def _hear_freed(self, payload: str) -> None:
        self._book.freed(int(payload))
        self._wake.set()

    def _hear_settings(self, _: str) -> None:
        self._stale = True
        self._wake.set()

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
            asked = await evictions.session_preempts(connection, tenant=session.tenant, session_id=session.session_id)
            waiting.preempts += [wire.Preempt(execution_id=e, attempt=attempt) for e, attempt in asked]
        await self._relieve(waiting)

    def _kept_for(self, session_id: UUID) -> int | None:
        """The line that a worker is kept for, if it is."""
        known = self._sessions.get(session_id)
        return None if known is None else known[1].kept


def _could_run(waiting: Waiting, line: Line) -> bool:
    """Whether the worker could run the line's executions once it is idle."""
    reached = line.queue in waiting.profile.queues and line.reached_by(waiting.profile)
    return reached and has_amounts(line.demand.resources, waiting.session.resources)
