"""The dispatcher: holds the streams and long polls of its workers and claims for them in batches.

Claims ask only for lines that are fresh (they may have queued executions) and that a waiting worker can run. Losing a
NOTIFY costs at most the interval of the slow poll, never an execution.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.clock import Clock, SystemClock
from mainspring.dispatch.assign_lines import assign_lines, name_functions
from mainspring.dispatch.assignments import Assignments
from mainspring.dispatch.claim import Claimer
from mainspring.dispatch.handoff import DirectHandoff
from mainspring.dispatch.lines import KnownLines
from mainspring.dispatch.match import capacity_of
from mainspring.dispatch.preemption import Preemption
from mainspring.dispatch.reservation_cache import ReservationCache
from mainspring.dispatch.session_cache import SessionCache
from mainspring.dispatch.settings import DispatchSettings
from mainspring.dispatch.starvation import StarvationGuard
from mainspring.dispatch.streams import WorkerStream
from mainspring.dispatch.waiting import ClaimOffer, OpenPoll, WaitingWorker, WaitingWorkers
from mainspring.domain.errors import Unavailable
from mainspring.service import Loops, Service
from mainspring.store import claims, evictions, lines, sessions, tokens
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.sessions import NO_PROOF, SessionProof
from mainspring.telemetry import metrics
from mainspring.wire.ready_execution import ReadyRef

SLOW_POLL_S = 1.75
"""With its query and the claim, an execution whose hint was lost starts within 2 s."""
SILENT_S = 90.0
DECLINED_S = 0.1
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
        queue: ports.Queue | None = None,
    ) -> None:
        self._database = database
        self._queue = queue
        if queue is not None:
            queue.deliver_to(self._on_ready)
        self._clock = clock = clock or SystemClock()
        self.sessions = SessionCache(database)
        self._waiting = WaitingWorkers()
        self._settings = settings = DispatchSettings()
        self._known = known = KnownLines(settings.demand)
        self._reservations = reserved = ReservationCache(definitions, settings)
        self._starvation = StarvationGuard(known, settings, self._waiting, self.sessions, clock=clock)
        self._claimer = Claimer(database, known, settings, reserved, clock=clock)
        self._preemption = Preemption(database, known, settings, reserved, definitions, self.sessions, clock=clock)
        self._assignments = Assignments(definitions, known, settings, reserved, self._waiting, announcer, clock=clock)
        self.credentials = self._assignments.credentials
        self.handoff = DirectHandoff(
            known,
            settings,
            reserved,
            self._waiting,
            self._claimer,
            self._assignments,
            on_release=self._claim_if_queued,
        )
        self._cancelled: set[UUID] = set()
        self._functions_named = False  # in the lines of all Python jobs
        self._poll_now = asyncio.Event()
        self._wake = asyncio.Event()
        self._timer: asyncio.Handle = asyncio.get_running_loop().call_soon(lambda: None)
        self._loops = Loops("dispatcher")
        bus.subscribe(ports.QUEUED, self._on_queued, on_gap=self._poll_now.set)
        bus.subscribe(ports.FREED, self._on_freed, on_gap=lambda: None)
        bus.subscribe(ports.SETTINGS, self._on_settings, on_gap=lambda: None)
        bus.subscribe(ports.CANCEL, self._on_cancel, on_gap=lambda: None)
        bus.subscribe(ports.FUNCTIONS, self._on_functions, on_gap=self._on_functions_missed)

    async def open(self) -> None:
        """Read the key of the attempts' credentials."""
        async with self._database.connection() as connection:
            self.credentials.open(await tokens.server_key(connection, name="attempts"))

    async def start(self) -> None:
        await self.open()
        self._loops.forever("claim", self._claim_step, backoff_s=0.1)
        self._loops.forever("slow poll", self._slow_poll)
        self._loops.forever("preempt", self._preemption.step)
        self._loops.forever("close silent streams", self._close_silent)

    async def drain(self) -> None:
        """Close all polls and streams, after what is being claimed for them, so that workers ask another process."""
        await self._waiting.close()

    async def stop(self) -> None:
        await self.drain()
        self._timer.cancel()
        await self._loops.stop()

    async def poll(self, request: wire.Poll, *, tenant: int, proof: SessionProof = NO_PROOF) -> wire.Polled:
        """Answer when there is work, a cancellation, or the wait has timed out."""
        session_id = request.session_id
        is_new = session_id not in self.sessions
        session, profile = await self.sessions.get(session_id, tenant=tenant, proof=proof)
        if is_new:
            self._poll_now.set()
        if self._waiting.closed:
            return wire.Polled(executions=[], definitions={}, cancels=[])
        if previous := self._waiting.by_session.get(session_id):
            await self._waiting.end(previous)
            session, profile = self.sessions.latest(session_id) or (session, profile)
        resources = session.resources if request.resources is None else request.resources
        free = min(request.free, session.slots)
        poll = OpenPoll(session, profile, capacity_of(session, free, resources))
        self._waiting.add(poll)
        if session_id in self._cancelled:
            self._cancelled.discard(session_id)
            self._loops.spawn(self._send_cancels(poll), "cancel")
        if free:
            self._capacity_grew()
        try:
            return await asyncio.wait_for(asyncio.shield(poll.answer), request.wait_s)
        except TimeoutError:
            self._waiting.remove(poll)
            await poll.quiet()
            return poll.result()
        finally:
            self._waiting.remove(poll)

    def forget(self, session_id: UUID) -> None:
        """Drop an ended session, and close its poll or stream."""
        self.sessions.forget(session_id)
        self._starvation.forget(session_id)
        self._cancelled.discard(session_id)
        if worker := self._waiting.by_session.get(session_id):
            self._waiting.remove(worker)
            worker.close(session_ended=True)

    # Streams -------------------------------------------------------------------------------------------

    async def open_stream(
        self,
        request: wire.OpenStream,
        send: Callable[[wire.ApiMessage], None],
        *,
        tenant: int,
        proof: SessionProof = NO_PROOF,
    ) -> WorkerStream:
        """Begin to send work through `send`. Raises Conflict if the session has ended."""
        is_new = request.session_id not in self.sessions
        session, profile = await self.sessions.get(request.session_id, tenant=tenant, proof=proof)
        if is_new:
            self._poll_now.set()
        if self._waiting.closed:
            raise Unavailable("this api process is stopping; try another one")
        stream = WorkerStream(session, profile, send, heard_at=self._clock.monotonic())
        while previous := self._waiting.by_session.get(session.session_id):
            await self._waiting.end(previous)  # what is under way for it is found below, if it was lost
            stream.session, stream.profile = self.sessions.latest(session.session_id) or (session, profile)
        self._waiting.add(stream)
        try:
            if request.held is not None:
                await self._send_again(stream, request.held)
        except BaseException:
            self._waiting.remove(stream)
            raise
        self._cancelled.discard(session.session_id)
        if request.held is not None:
            self._loops.spawn(self._send_cancels(stream), "cancel")
        self.state_capacity(stream, request.capacity)
        return stream

    async def _send_again(self, stream: WorkerStream, held: list[UUID]) -> None:
        """Send what was claimed for this session and never reached it."""
        async with self._database.connection() as connection:
            rows = await claims.undelivered(connection, session_id=stream.session.session_id, held=held)
        if rows:
            await self._assignments.send(rows, {stream.session.session_id: stream})

    def state_capacity(self, stream: WorkerStream, capacity: wire.Capacity) -> None:
        if stream.state(capacity):
            self._waiting.update(stream)
            self._capacity_grew()

    async def recall(self, stream: WorkerStream) -> None:
        """Return when no more work will be sent, until the worker states its capacity again."""
        stream.block()
        self._waiting.update(stream)
        await stream.quiet()

    def close_stream(self, stream: WorkerStream) -> None:
        """Send nothing more: the connection has ended. What was lost with it is sent again in the next stream."""
        if stream.is_pending and stream.is_open:
            self._loops.spawn(self._waiting.end(stream), "close stream")  # the next stream waits for this, too
        else:
            self._waiting.remove(stream)

    async def _close_silent(self) -> None:
        """Close streams whose worker is gone without a sign: a worker sends something at least every 20 s."""
        await asyncio.sleep(SILENT_S / 3)
        before = self._clock.monotonic() - SILENT_S
        for worker in list(self._waiting.by_session.values()):
            if isinstance(worker, WorkerStream) and worker.heard_at < before:
                self._waiting.remove(worker)
                worker.close()

    def _capacity_grew(self) -> None:
        self._claimer.reopen_capped()
        self._claim_if_queued()

    def _claim_if_queued(self) -> None:
        if self._known.fresh:
            self._wake.set()

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

    async def claim_queued(self) -> float | None:
        """Claim everything that waiting workers can take now, without a hint; for a dispatcher without its loops.

        Returns when, on the clock, a rate limit lets more start; None: no limit holds anything back.
        """
        await self._look_for_queued()
        while await self._claim_all():
            pass
        return self._claimer.next_start()

    async def _claim_all(self) -> bool:
        """Claim once for each group of competing lines; return whether another round may find more."""
        await self._refresh()
        again = False
        for group in self._claimer.groups(list(self._waiting.free), self._waiting.has_capacity):
            with ClaimOffer(self._waiting, self._reservations) as offer:
                rows = await self._claimer.claim(group, offer.of_profile)
                if rows:
                    await self._assignments.send(rows, offer.workers)
                for session_id in self._claimer.unserved:
                    self._waiting.decline(offer.workers[session_id])
                    self._loops.spawn(self._check_declined(offer.workers[session_id]), "check session")
                again |= bool(rows or self._claimer.unserved) or not self._known.fresh.issuperset(group.lines)
        return again

    async def _check_declined(self, worker: WaitingWorker) -> None:
        """Drop a session that nothing could be claimed for if it has ended: its worker must register again."""
        await asyncio.sleep(DECLINED_S)
        session = worker.session
        async with self._database.connection() as connection:
            found = await sessions.session_by_id(connection, tenant=session.tenant, session_id=session.session_id)
        if found is None:
            self.forget(session.session_id)
        else:
            worker.ask_again()

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
            self._known.apply_settings()
            self._claimer.shares.weights = self._settings.weights
            self._claimer.reopen_capped()

    # Wake-ups ------------------------------------------------------------------------------------------

    async def _slow_poll(self) -> None:
        """Look for queued lines: the safety net under NOTIFY, also run for a new session and after a gap."""
        try:
            await asyncio.wait_for(self._poll_now.wait(), SLOW_POLL_S)
        except TimeoutError:
            if not self._waiting.by_session:
                return
        self._poll_now.clear()
        try:
            await self._look_for_queued()
        except BaseException:
            self._poll_now.set()
            raise
        self._wake.set()

    async def _look_for_queued(self) -> None:
        async with self._database.connection() as connection:
            found = await claims.queued_lines(connection, limit=MAX_QUEUED_LINES)
        if 0 in found:
            await assign_lines(self._database)
        if not self._functions_named:
            await name_functions(self._database)
            self._functions_named = True
        self._settings.stale = True
        self._known.refresh(found)
        self._starvation.update()

    def _on_ready(self, records: Sequence[ReadyRef]) -> None:
        """Executions that the queue engine has named. Only those that need nothing but a slot are claimed by id."""
        for record in records:
            line = self._known.get(record.line)
            if line is None or not self._claimer.needs_only_slot(line):
                self._known.mark_queued(record.line, record.rank)
            elif self._claimer.ready.push(record.line, record.rank, record.execution_id):
                self._known.mark_named(line)
            else:
                metrics.QUEUE_RECORDS.labels("dropped").inc()
        self._wake.set()

    def _on_queued(self, payload: str) -> None:
        """`<line> <rank>`. An older version sends only the queue: then there are executions without a line."""
        line_id, _, rank = payload.partition(" ")
        if not rank or line_id == "0":
            self._poll_now.set()
            return
        if self._queue is not None and self._queue.available:
            line = self._known.get(int(line_id))
            if line is not None and self._claimer.needs_only_slot(line):
                return  # the queue brings it; if not, the slow poll does
        self._known.mark_queued(int(line_id), int(rank))
        self._wake.set()

    def _on_freed(self, payload: str) -> None:
        self._known.reopen(int(payload))
        self._wake.set()

    def _on_settings(self, _: str) -> None:
        self._settings.stale = True
        self._wake.set()

    def _on_functions(self, session: str) -> None:
        self.sessions.functions_changed()
        self._loops.spawn(self._read_functions([UUID(session)]), "functions")

    def _on_functions_missed(self) -> None:
        self.sessions.functions_changed()
        if stating := self.sessions.stating:
            self._loops.spawn(self._read_functions(stating), "functions")

    async def _read_functions(self, session_ids: list[UUID]) -> None:
        """Read what sessions state now: their workers get executions of other functions than before."""
        for session_id in session_ids:
            if (found := await self.sessions.read_again(session_id)) is not None:
                session, profile = found
                self._waiting.change_profile(session_id, profile, session)
        self._claim_if_queued()

    def _on_cancel(self, session: str) -> None:
        session_id = UUID(session)
        if (worker := self._waiting.by_session.get(session_id)) is not None:
            self._loops.spawn(self._send_cancels(worker), "cancel")
        elif session_id in self.sessions:
            self._cancelled.add(session_id)  # between two polls: the next one delivers it

    async def _send_cancels(self, worker: WaitingWorker) -> None:
        tenant, session_id = worker.session.tenant, worker.session.session_id
        async with self._database.connection() as connection:
            cancels = await sessions.session_cancels(connection, tenant=tenant, session_id=session_id)
            preempts = await evictions.session_preempts(connection, tenant=tenant, session_id=session_id)
        worker.stop_attempts(cancels, [wire.Preempt(execution_id=e, attempt=attempt) for e, attempt in preempts])
        if isinstance(worker, OpenPoll):
            await self._waiting.end(worker)
