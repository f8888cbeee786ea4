"""Schedulers and api processes under simulation: the parts of production, without their loops."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.api.context import Context
from mainspring.api.workers import renew_lease
from mainspring.clock import Clock, DatabaseClock
from mainspring.dispatch.heartbeat import Heartbeats
from mainspring.dispatch.service import Dispatcher
from mainspring.dispatch.streams import WorkerStream
from mainspring.domain.errors import Conflict, Unavailable
from mainspring.domain.settlement import AttemptResult
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.batch import Report
from mainspring.results.rescue import Rescue
from mainspring.results.settle import Settler
from mainspring.scheduler.service import Scheduler
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.sessions import NO_PROOF
from tests.simulation.bus import SimulatedBus
from tests.simulation.processes import Activity, Process
from tests.simulation.workers import LEASE_S, SLOTS

TENANT = 1
SHARD_LEASE_S = 10.0
MOST_ATTEMPT_S = 8.0
Send = Callable[[str, str, dict[str, Any], str | None], None]
"""Puts a message on the network: receiver, kind, content, and the stream that it belongs to."""


class SchedulerProcess(Process):
    """A scheduler with its two loops, and the rescue if it leads."""

    def __init__(
        self, name: str, shared: Database, activity: Activity, bus: SimulatedBus, clock: Clock, rng: random.Random
    ) -> None:
        super().__init__(name, shared, activity)
        bus = bus.of(name)
        self.scheduler = Scheduler(
            self.database, bus, lease_s=SHARD_LEASE_S, name=name, clock=DatabaseClock(clock.monotonic)
        )
        settler = Settler(self.database, Definitions(self.database), Announcer(bus), rng=rng)
        self._rescue = Rescue(self.database, settler, leads=self.scheduler.leads, clock=clock)

    def start(self, operation: str) -> None:
        if not self.is_doing(operation):
            self.begin(operation, getattr(self, f"_{operation}"))

    async def _lease(self) -> None:
        await self.scheduler.lease()

    async def _decide(self) -> None:
        if self.scheduler.clock.known:
            await self.scheduler.decide()

    async def _safety_net(self) -> None:
        self.scheduler._on_gap()

    async def _save(self) -> None:
        if self.scheduler.leads():
            await self._rescue.rescue()


class ApiProcess(Process):
    """An api process: its dispatcher, its settler, and the handlers of the worker protocol."""

    def __init__(
        self,
        name: str,
        shared: Database,
        activity: Activity,
        bus: SimulatedBus,
        clock: Clock,
        rng: random.Random,
        send: Send,
    ) -> None:
        super().__init__(name, shared, activity)
        bus = bus.of(name)
        announcer, definitions = Announcer(bus), Definitions(self.database)
        self._rng, self._send = rng, send
        self._settler = Settler(self.database, definitions, announcer, rng=rng)
        self._dispatcher = Dispatcher(self.database, bus, definitions, announcer, clock=clock)
        self._submitter = Submitter(self.database)
        self._heartbeats = Heartbeats(self.database, lease_s=LEASE_S)
        self._context = cast(
            Context, SimpleNamespace(heartbeats=self._heartbeats, settler=self._settler, announcer=announcer)
        )
        self._streams: dict[str, WorkerStream] = {}
        self.accepted: list[tuple[UUID, int, UUID]] = []  # results that were not stale
        self.acknowledged: dict[str, UUID] = {}
        self.begin("open", self._dispatcher.open)

    async def kill(self) -> None:
        for stream in self._streams:
            self._send(stream.partition("/")[0], "closed", {"stream": stream}, None)
        await super().kill()
        await self._dispatcher.stop()

    def claim(self) -> None:
        if not self.is_doing("claim"):
            self.begin("claim", self._claim)

    async def _claim(self) -> None:
        await self._dispatcher.claim_queued()

    def handle(self, sender: str, kind: str, body: dict[str, Any]) -> None:
        """Begin to handle a message of a worker or a client."""
        self.begin(kind, lambda: getattr(self, f"_on_{kind}")(sender, **body))

    async def _on_register(self, sender: str, *, at: float) -> None:
        session_id = uuid4()
        register = wire.Register(
            name=sender,
            host="h",
            version="1",
            slots=SLOTS,
            queues=["short", "long"],
            kinds=["noop"],
            takes=["disclaim"],
        )
        async with self.database.connection() as connection:
            await sessions.insert_session(
                connection, tenant=TENANT, session_id=session_id, worker_id=uuid4(), register=register, lease_s=LEASE_S
            )
        self._send(sender, "registered", {"session": session_id, "at": at}, None)

    async def _on_beat(self, sender: str, *, session: UUID, running: list[UUID], at: float) -> None:
        try:
            beat = await renew_lease(
                self._context,
                wire.Heartbeat(session_id=session, running=running),
                session_id=session,
                tenant=TENANT,
                proof=NO_PROOF,
            )
        except Conflict:
            self._dispatcher.forget(session)
            self._send(sender, "ended", {"session": session}, None)
            return
        answer = {"session": session, "at": at, "lease_s": beat.lease_s, "gone": beat.gone}
        preempts = [(one.execution_id, one.attempt) for one in beat.preempts]
        self._send(sender, "beaten", {**answer, "preempts": preempts}, None)

    async def _on_open(self, sender: str, *, session: UUID, stream: str, held: list[UUID]) -> None:
        def send(message: wire.ApiMessage) -> None:
            if isinstance(message, wire.Work) and message.executions:
                lasts = [self._rng.uniform(0.2, MOST_ATTEMPT_S) for _ in message.executions]
                self._send(sender, "work", {"stream": stream, "executions": message.executions, "lasts": lasts}, stream)
            elif isinstance(message, wire.Closing):
                self._send(sender, "closed", {"stream": stream}, stream)

        request = wire.OpenStream(session_id=session, capacity=wire.Capacity(received=0, free=0), held=held)
        try:
            self._streams[stream] = await self._dispatcher.open_stream(request, send, tenant=TENANT)
            self._send(sender, "opened", {"stream": stream}, stream)
        except (Conflict, Unavailable):
            self._send(sender, "closed", {"stream": stream}, None)

    async def _on_capacity(self, sender: str, *, stream: str, capacity: wire.Capacity) -> None:
        if stream in self._streams:
            self._dispatcher.state_capacity(self._streams[stream], capacity)
        else:
            self._send(sender, "closed", {"stream": stream}, None)

    async def _on_gone(self, sender: str, *, stream: str) -> None:
        """The connection of a stream has ended."""
        if (found := self._streams.pop(stream, None)) is not None:
            self._dispatcher.close_stream(found)

    async def _on_report(self, sender: str, *, session: UUID, results: list[AttemptResult]) -> None:
        stale = await self._settler.settle(Report(session, results))
        self.accepted += [(r.execution_id, r.attempt, session) for r in results if r.execution_id not in stale]
        self._send(sender, "settled", {"keys": [(r.execution_id, r.attempt) for r in results]}, None)

    async def _on_end(self, sender: str, *, session: UUID) -> None:
        """The guardian of a worker that has died reports the end of its session."""
        async with self.database.connection() as connection:
            await sessions.end_session(connection, tenant=TENANT, session_id=session, lost=True)
        self._dispatcher.forget(session)

    async def _on_submit(self, sender: str, *, job: UUID, key: str) -> None:
        self.acknowledged[key] = await self._submitter.submit_once(Submission(TENANT, "test", job), key)
