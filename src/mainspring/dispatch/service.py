"""The dispatcher: holds the long polls of its workers and claims for them in batches.

Claims ask only for lines that are fresh (they may have queued executions) and that a waiting worker can run. Losing a
NOTIFY costs at most the interval of the slow poll, never an execution.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.clock import Clock, SystemClock
from mainspring.dispatch.assign_lines import assign_lines
from mainspring.dispatch.assignments import Assignments
from mainspring.dispatch.claim import MAX_BATCH, Claimer
from mainspring.dispatch.handoff import DirectHandoff
from mainspring.dispatch.lines import KnownLines
from mainspring.dispatch.match import FreeCapacity
from mainspring.dispatch.polls import OpenPoll, OpenPolls
from mainspring.dispatch.preemption import Preemption
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.session_cache import SessionCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.dispatch.starvation import StarvationGuard
from mainspring.service import Loops, Service
from mainspring.store import claims, evictions, lines, sessions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions

SLOW_POLL_S = 2.0
MAX_QUEUED_LINES = 20_000


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
        self._clock = clock = clock or SystemClock()
        self.sessions = SessionCache(database)
        self._polls = OpenPolls()
        self._known = known = KnownLines()
        self._settings = settings = DispatchSettings()
        self._reservations = reserved = ReservationCache(definitions, settings)
        self._starvation = StarvationGuard(known, settings, self._polls, self.sessions, clock=clock)
        self._claimer = Claimer(database, known, settings, reserved, clock=clock)
        self._preemption = Preemption(database, known, settings, reserved, definitions, self.sessions, clock=clock)
        self._assignments = Assignments(definitions, known, settings, reserved, self._polls, announcer, clock=clock)
        self._claiming = asyncio.Lock()
        self.handoff = DirectHandoff(
            known, settings, reserved, self._polls, self._claimer, self._assignments, self._claiming
        )
        self._cancelled: set[UUID] = set()
        self._poll_now = asyncio.Event()
        self._wake = asyncio.Event()
        self._timer: asyncio.Handle = asyncio.get_running_loop().call_soon(lambda: None)
        self._loops = Loops("dispatcher")
        bus.subscribe(ports.QUEUED, self._on_queued, on_gap=self._poll_now.set)
        bus.subscribe(ports.FREED, self._on_freed, on_gap=lambda: None)
        bus.subscribe(ports.SETTINGS, self._on_settings, on_gap=lambda: None)
        bus.subscribe(ports.CANCEL, self._on_cancel, on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("claim", self._claim_step, backoff_s=0.1)
        self._loops.forever("slow poll", self._slow_poll)
        self._loops.forever("preempt", self._preemption.step)

    async def drain(self) -> None:
        """Answer all polls with nothing, so that the workers ask another api process."""
        self._polls.close()

    async def stop(self) -> None:
        await self.drain()
        self._timer.cancel()
        await self._loops.stop()

    async def poll(self, request: wire.Poll, *, tenant: int) -> wire.Polled:
        """Answer when there is work, a cancellation, or the wait has timed out."""
        session_id = request.session_id
        is_new = session_id not in self.sessions
        session, profile = await self.sessions.get(session_id, tenant=tenant)
        if is_new:
            self._poll_now.set()
        if self._polls.closed:
            return wire.Polled(executions=[], definitions={}, cancels=[])
        if previous := self._polls.by_session.get(session_id):
            await self._end_poll(previous)
        resources = session.resources if request.resources is None else request.resources
        free = min(request.free, session.slots, MAX_BATCH)
        capacity = FreeCapacity(session_id, session.slots, free, resources)
        poll = OpenPoll(session, profile, capacity, asyncio.get_running_loop().create_future())
        self._polls.add(poll)
        if session_id in self._cancelled:
            self._cancelled.discard(session_id)
            self._loops.spawn(self._send_cancels(poll), "cancel")
        if free:
            self._claimer.reopen_capped()
            if self._known.fresh:
                self._wake.set()
        try:
            return await asyncio.wait_for(asyncio.shield(poll.answer), request.wait_s)
        except TimeoutError:
            self._polls.remove(poll)
            async with self._claiming:  # a claim under way may already have work for this worker
                return poll.result()
        finally:
            self._polls.remove(poll)

    def forget(self, session_id: UUID) -> None:
        """Drop an ended session; its open poll, if any, is answered with nothing."""
        self.sessions.forget(session_id)
        self._starvation.forget(session_id)
        self._cancelled.discard(session_id)
        if poll := self._polls.by_session.get(session_id):
            self._polls.answer(poll)

    async def _end_poll(self, poll: OpenPoll) -> None:
        """Answer a poll after the claim under way, with the work that claim has for it."""
        self._polls.remove(poll)
        async with self._claiming:
            self._polls.answer(poll)

    # Claim loop ----------------------------------------------------------------------------------------

    async def _claim_step(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        try:
            while await self._claim_all():
                pass
        except BaseException:
            self._wake.set()
            raise
        if self._reservations.preemption and self._known.fresh:
            self._preemption.wake()
        self._timer.cancel()
        if (at := self._claimer.next_start()) is not None:
            wait_s = max(0.0, at - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)

    async def _claim_all(self) -> bool:
        """Claim once for each group of competing lines; return whether another round may find more."""
        await self._refresh()
        again = False
        for group in self._claimer.groups(list(self._polls.free), self._polls.has_capacity):
            async with self._claiming:
                self._polls.offered.clear()
                rows = await self._claimer.claim(group, lambda p: self._polls.offer(p, self._reservations))
                if rows:
                    await self._assignments.send(rows)
                for session_id in self._claimer.unserved:
                    self._polls.answer(self._polls.offered[session_id])
                again |= bool(rows or self._claimer.unserved) or not self._known.fresh.issuperset(group.lines)
        return again

    async def _refresh(self) -> None:
        """Read lines that only notifications have named so far, and changed settings."""
        if unknown := self._known.unknown:
            async with self._database.connection() as connection:
                self._known.add(unknown, await lines.lines_by_id(connection, line_ids=unknown))
        if self._settings.stale:
            self._settings.stale = False
            try:
                await self._settings.load(self._database)
                await self._reservations.load(self._database)
            except BaseException:
                self._settings.stale = True
                raise
            self._claimer.shares.weights = self._settings.weights
            self._claimer.reopen_capped()

    # Wake-ups ------------------------------------------------------------------------------------------

    async def _slow_poll(self) -> None:
        """Look for queued lines: the safety net under NOTIFY, also run for a new session and after a gap."""
        try:
            await asyncio.wait_for(self._poll_now.wait(), SLOW_POLL_S)
        except TimeoutError:
            if not self._polls.by_session:
                return
        self._poll_now.clear()
        try:
            async with self._database.connection() as connection:
                found = await claims.queued_lines(connection, limit=MAX_QUEUED_LINES)
            if 0 in found:
                await assign_lines(self._database)
        except BaseException:
            self._poll_now.set()
            raise
        self._settings.stale = True
        self._known.refresh(found)
        self._starvation.update()
        self._wake.set()

    def _on_queued(self, payload: str) -> None:
        """`<line> <rank>`. An older version sends only the queue: then there are executions without a line."""
        line_id, _, rank = payload.partition(" ")
        if not rank or line_id == "0":
            self._poll_now.set()
            return
        self._known.mark_queued(int(line_id), int(rank))
        self._wake.set()

    def _on_freed(self, payload: str) -> None:
        self._known.reopen(int(payload))
        self._wake.set()

    def _on_settings(self, _: str) -> None:
        self._settings.stale = True
        self._wake.set()

    def _on_cancel(self, session: str) -> None:
        session_id = UUID(session)
        if (poll := self._polls.by_session.get(session_id)) is not None:
            self._loops.spawn(self._send_cancels(poll), "cancel")
        elif session_id in self.sessions:
            self._cancelled.add(session_id)  # between two polls: the next one delivers it

    async def _send_cancels(self, poll: OpenPoll) -> None:
        tenant, session_id = poll.session.tenant, poll.session.session_id
        async with self._database.connection() as connection:
            poll.cancels += await sessions.session_cancels(connection, tenant=tenant, session_id=session_id)
            preempts = await evictions.session_preempts(connection, tenant=tenant, session_id=session_id)
            poll.preempts += [wire.Preempt(execution_id=e, attempt=attempt) for e, attempt in preempts]
        await self._end_poll(poll)
