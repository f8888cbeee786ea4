"""A worker of a cluster under test: it acts when the cluster asks it to, and has switches that break it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from mainspring import __version__, wire
from mainspring.dispatch.service import Dispatcher
from mainspring.dispatch.streams import WorkerStream
from mainspring.domain.errors import Invalid
from mainspring.domain.job import Definition, kind_of
from mainspring.domain.settlement import AttemptResult
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.sessions import Heartbeat
from mainspring.worker.executors import Done, Executor, Work

TENANT = 1
LEASE_S = 20.0
"""How long the cluster waits for a silent worker before it takes its executions away."""


class TestWorker:
    """Executes attempts one after the other, in the order in which it received them.

    `stale` lists executions whose results came too late: they had been taken away in the meantime.
    """

    __test__ = False  # pytest collects classes by their names

    def __init__(
        self,
        name: str,
        *,
        slots: int = 8,
        queues: Sequence[str] = ("short", "long"),
        labels: Mapping[str, str] | None = None,
        database: Database,
        dispatcher: Dispatcher,
        settler: Settler,
        executors: Mapping[str, Executor],
    ) -> None:
        self.name = name
        self.executed: list[str] = []
        self.stale: list[UUID] = []
        self._slots, self._queues, self._labels = slots, list(queues), dict(labels or {})
        self._database, self._dispatcher, self._settler = database, dispatcher, settler
        self._executors = executors
        self._session_id: UUID | None = None
        self._stream: WorkerStream | None = None
        self._definitions: dict[str, Definition] = {}
        self._received: list[wire.Assignment] = []
        self._count = 0
        self._held: list[Report] = []
        self._running: list[UUID] = []
        self._crash_before: str | None = None
        self._crash_after: str | None = None
        self._cut_off_during: str | None = None
        self._is_cut_off = False

    # Switches ------------------------------------------------------------------------------------------

    def crash(self, *, before: str | None = None, after: str | None = None) -> None:
        """Crash now; or before the next attempt of a job begins, or after it, before the result is reported.

        What it was executing is noticed when its lease has ended, 20 s later. The worker starts again at once.
        """
        if before is not None and after is not None:
            raise Invalid("crash: give `before` or `after`, not both")
        self._crash_before, self._crash_after = before, after
        if before is None and after is None:
            self._crash()

    def cut_off(self, *, during: str | None = None) -> None:
        """Cut the connection now, or during the next attempt of a job; its attempt continues."""
        self._cut_off_during = during
        self._is_cut_off = during is None

    def reconnect(self) -> None:
        """Restore the connection: the results that it holds are reported."""
        self._cut_off_during, self._is_cut_off = None, False

    def _crash(self) -> None:
        self._crash_before = self._crash_after = None
        self._session_id, self._running = None, []
        self._received.clear()
        self._held.clear()
        if self._stream is not None:
            self._dispatcher.close_stream(self._stream)
            self._stream = None

    # Steps, called by the cluster ------------------------------------------------------------------------

    async def connect(self) -> None:
        """Register if need be, renew the lease, report what is held, and offer the free slots."""
        if self._is_cut_off:
            return
        if self._session_id is not None and not await self._renew():
            await self._report_held()
            self._crash()  # its session has ended: it registers again, as a worker does
        if self._session_id is None:
            await self._register()
        await self._report_held()
        assert self._session_id is not None
        capacity = wire.Capacity(received=self._count, free=self._slots)
        if self._stream is None:
            self._count = 0
            request = wire.OpenStream(session_id=self._session_id, capacity=wire.Capacity(received=0, free=self._slots))
            self._stream = await self._dispatcher.open_stream(request, self._receive, tenant=TENANT)
        else:
            self._dispatcher.state_capacity(self._stream, capacity)

    async def work(self) -> int:
        """Execute what was received; return the number of attempts."""
        done = 0
        while self._received:
            await self._attempt(self._received.pop(0))
            done += 1
        return done

    async def _register(self) -> None:
        self._session_id = uuid4()
        register = wire.Register(
            name=self.name,
            host="test",
            version=__version__,
            slots=self._slots,
            queues=self._queues,
            kinds=sorted(self._executors),
            labels=self._labels,
        )
        async with self._database.connection() as connection:
            await sessions.insert_session(
                connection,
                tenant=TENANT,
                session_id=self._session_id,
                worker_id=uuid4(),
                register=register,
                lease_s=LEASE_S,
            )

    async def _renew(self) -> bool:
        assert self._session_id is not None
        held = [ended.execution_id for report in self._held for ended in report.ended]
        running = [each.execution_id for each in self._received] + self._running + held
        beat = Heartbeat(TENANT, self._session_id, running)
        async with self._database.connection() as connection:
            return self._session_id in await sessions.renew_sessions(connection, beats=[beat], lease_s=LEASE_S)

    async def _report_held(self) -> None:
        held, self._held = self._held, []
        for report in held:
            self.stale += sorted(await self._settler.settle(report))

    def _receive(self, message: wire.ApiMessage) -> None:
        if isinstance(message, wire.Work):
            self._definitions |= message.definitions
            self._received += message.executions
            self._count += len(message.executions)
        elif isinstance(message, wire.Closing):
            self._stream = None

    async def _attempt(self, assignment: wire.Assignment) -> None:
        session_id = self._session_id
        assert session_id is not None
        definition = self._definitions[assignment.definition]
        if definition.name == self._crash_before:
            self._crash()
            return
        self._running = [assignment.execution_id]
        if definition.name == self._cut_off_during:
            self.cut_off()
        self.executed.append(definition.name)
        work = Work(assignment, definition, session_id=session_id, cleanup=NothingToCleanUp())
        done = await self._execute(work)
        self._running = []
        if definition.name == self._crash_after:
            self._crash()
            return
        work.finish_output()
        ended = AttemptResult(
            assignment.execution_id,
            assignment.attempt,
            session_id,
            done.outcome,
            0,
            done.exit_code,
            done.error,
            done.result,
            done.retry,
        )
        self._held.append(Report(session_id, [ended], work.take_output()))
        if not self._is_cut_off:
            await self._report_held()

    async def _execute(self, work: Work) -> Done:
        if work.definition.artifacts_in:
            return Done("failed", error="mainspring.testing has no artifacts_in: pass the files in another way")
        executor: Any = self._executors[kind_of(work.definition.task)]
        try:
            done: Done = await executor.execute(work)
        except Exception as error:
            return Done("failed", error=f"{type(error).__name__}: {error}")
        return done


class NothingToCleanUp:
    """A cleanup registry for a worker that ends with its test. Implements `CleanupRegistry`."""

    def add_process_group(self, group: int) -> None: ...
    def remove_process_group(self, group: int) -> None: ...
    def add_process(self, pid: int, started: int) -> None: ...
    def remove_process(self, pid: int, started: int) -> None: ...
    def add_cgroup(self, procs_file: str) -> None: ...
    def remove_cgroup(self, procs_file: str) -> None: ...
    def add_folder(self, path: str) -> None: ...
    def add_engine(self, path: str) -> None: ...
