"""A whole cluster in one process: api, scheduler, dispatcher and workers, moved step by step under a virtual clock.

The statements are those of production, on a real PostgreSQL. Only the loops are missing: each step asks every part in
turn to do what is due, until nothing is. So a test that travels a week takes a moment, and ends the same way each time.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT, Server
from mainspring.client import AsyncClient
from mainspring.clock import instant
from mainspring.config import ServeConfig
from mainspring.dispatch.service import Dispatcher
from mainspring.domain.errors import Invalid
from mainspring.domain.execution import FINAL
from mainspring.domain.job import JobSpec
from mainspring.duties.service import Duties
from mainspring.intake.declare import declare
from mainspring.results.rescue import Rescue
from mainspring.scheduler.service import Scheduler
from mainspring.sdk.clients import close_clients
from mainspring.sdk.job import declared
from mainspring.store import executions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.testing.clock import START, VirtualClock, read_instant
from mainspring.testing.functions import CallSync, FunctionsInTest
from mainspring.testing.worker import TENANT, NothingToCleanUp, TestWorker
from mainspring.vault.keyring import Keyring, new_key_line, read_keys
from mainspring.vault.vault import Vault
from mainspring.views import executions as execution_views
from mainspring.worker.executors import Executor, Host, load_executors, start_all, stop_all

MAX_INSTANTS = 100_000
"""Instants that one call may stop at, so that a job that runs every second does not keep a test busy for a year."""
SHARD_LEASE_S = 5.0
PAGE = 500


class StillBusy(AssertionError):
    """Executions are left that nothing will end."""


class SilentBus:
    """A bus without messages: each step looks for what is due. Implements ports.Bus."""

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        return

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        return


class AsyncCluster:
    """A cluster for asynchronous tests. Use it with `async with`; see `Cluster` for synchronous ones."""

    def __init__(
        self,
        database_url: str,
        *,
        start: datetime | str = START,
        workers: int = 1,
        call_sync: CallSync = asyncio.to_thread,
    ) -> None:
        self._start = read_instant(start)
        config = ServeConfig(database_url=database_url, roles=("api",), port=0, rate_limit=0)
        keyring = Keyring(read_keys(new_key_line("test"), "a new key"))
        self._server = Server(config, vault=Vault(keyring))
        self._functions = FunctionsInTest(call_sync)
        self._executors: dict[str, Executor] = {**load_executors(), "python": self._functions}
        self._number_of_workers = workers
        self._environment: dict[str, str | None] = {}
        self._abandoned: list[Scheduler] = []
        self._duties_at: datetime | None = None
        self.workers: list[TestWorker] = []
        self.url = self.token = ""

    async def __aenter__(self) -> Self:
        server = self._server
        async with Database(server.config.database_url, size=1) as database:
            await VirtualClock(database, self._start).install()
        await server.start()
        assert server.http is not None
        self._database = server.database
        self.clock = VirtualClock(self._database, self._start)
        async with self._database.connection() as connection:
            self.token = await issue_token(connection, tenant=DEFAULT_TENANT, name="test", scopes=("admin",))
        self.url = f"http://127.0.0.1:{server.http.port}"
        self._definitions = Definitions(self._database)
        self._dispatcher = Dispatcher(
            self._database, SilentBus(), self._definitions, server.announcer, clock=self.clock
        )
        await self._dispatcher.open()
        self._scheduler = self._new_scheduler()
        self._duties = Duties(self._database, SilentBus(), leads=lambda: True, announcer=server.announcer)
        self._rescue = Rescue(self._database, server.settler, leads=lambda: True, clock=self.clock)
        await start_all(self._executors, Host(8, NothingToCleanUp()))
        for number in range(self._number_of_workers):
            self.add_worker(f"worker-{number + 1}")
        self.client = AsyncClient(self.url, self.token)
        self._set_environment({"MAINSPRING_URL": self.url, "MAINSPRING_TOKEN": self.token})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._set_environment(self._environment)
        await self.client.aclose()
        await self._dispatcher.stop()
        for scheduler in (*self._abandoned, self._scheduler):
            await scheduler.stop()
        await stop_all(self._executors)
        self._functions.close()
        await self._server.stop()

    def _set_environment(self, values: Mapping[str, str | None]) -> None:
        """Have `submit()` of declared jobs find this cluster."""
        for name, value in values.items():
            self._environment.setdefault(name, os.environ.get(name))
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        close_clients()

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self._database, SilentBus(), lease_s=SHARD_LEASE_S)

    # Definitions ---------------------------------------------------------------------------------------

    async def load(self, *sources: str | ModuleType | Callable[..., Any]) -> list[str]:
        """Register the jobs that modules declare, or declared functions; return their names."""
        wanted: dict[str, JobSpec] = {}
        for source in sources:
            module, names = _declared_in(source)
            self._functions.add(module)
            for name in names:
                wanted[name] = msgspec.convert(declared[name][0].spec, JobSpec)
        for spec in wanted.values():
            found = await declare(self._database, spec, tenant=TENANT, by="test", may_exceed=True)
            if found.problem is not None:
                raise Invalid(f"the job {spec.name!r} cannot be registered: {found.problem}")
        return list(wanted)

    def add_worker(
        self,
        name: str,
        *,
        slots: int = 8,
        queues: Sequence[str] = ("short", "long"),
        labels: Mapping[str, str] | None = None,
    ) -> TestWorker:
        """Add a worker, which takes part from the next step on."""
        worker = TestWorker(
            name,
            slots=slots,
            queues=queues,
            labels=labels,
            database=self._database,
            dispatcher=self._dispatcher,
            settler=self._server.settler,
            executors=self._executors,
        )
        self.workers.append(worker)
        return worker

    def crash_scheduler(self) -> None:
        """The scheduler dies; another one takes over when its lease has ended, and decides what was missed."""
        self._abandoned.append(self._scheduler)
        self._scheduler = self._new_scheduler()

    # Time ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.clock.now

    async def run_until_idle(self) -> None:
        """Execute everything that is due, and move the clock for retries and delays, until no execution is left.

        Schedules fire as time passes, but the clock does not move for them. Raises StillBusy if executions are left
        that nothing will end: with `why` for each.
        """
        for _ in range(MAX_INSTANTS):
            wake = await self._settle_instant()
            live = await self.live()
            if not live:
                return
            if wake is None:
                raise StillBusy(await self._describe(live))
            await self.clock.set(wake)
        raise StillBusy(f"after {MAX_INSTANTS:,} instants: {await self._describe(await self.live())}")

    async def travel_to(self, at: datetime | str, *, tz: str | None = None) -> None:
        """Let time pass: everything happens at its instant, until the clock stands at `at`.

        A wall time without an offset is one of the zone `tz`, or else UTC.
        """
        target = read_instant(at, tz=tz)
        if target < self.now:
            raise Invalid(f"cannot travel back to {target.isoformat()}: it is {self.now.isoformat()}")
        for number in range(MAX_INSTANTS):
            wake = await self._settle_instant(expected=number == 0)
            if wake is None or wake > target:
                break
            await self.clock.set(wake)
        else:
            raise StillBusy(f"more than {MAX_INSTANTS:,} instants before {target.isoformat()}: travel in parts")
        await self.clock.set(target)
        await self._settle_instant()

    async def travel(self, **by: float) -> None:
        """Let time pass: `travel(hours=3)`."""
        await self.travel_to(self.now + timedelta(**by))

    async def jump_to(self, at: datetime | str, *, tz: str | None = None) -> None:
        """Let time pass while everything is down: what was due meanwhile is missed, and decided at once."""
        await self.clock.set(read_instant(at, tz=tz))
        await self._settle_instant()

    async def _settle_instant(self, *, expected: bool = True) -> datetime | None:
        """Do everything that is due now; return the next instant at which there may be something.

        Not `expected`: only schedules and duties can have brought something since the last instant.
        """
        if not expected and (self._duties_at is None or self.now < self._duties_at):
            next_ms = await self._scheduler.step()
            async with self._database.connection() as connection:
                if not await executions.has_live(connection):
                    wakes = [None if next_ms is None else instant(next_ms), self._duties_at]
                    return self._next(wakes)
        while True:
            for worker in self.workers:
                await worker.connect()
            lease_end = self._after(await self._rescue.rescue())
            next_ms = await self._scheduler.step()
            wakes = [None if next_ms is None else instant(next_ms)]
            self._duties_at = self._after(await self._duties.run_all())
            wakes.append(self._duties_at)
            at = await self._dispatcher.claim_queued()
            wakes.append(None if at is None else self._after(at - self.clock.monotonic()))
            attempts = [await worker.work() for worker in self.workers]
            if not any(attempts):
                break
        if await self.executions(states=["running"]):  # on a worker that is dead or cut off
            wakes.append(lease_end)
        if not self._scheduler.shards:  # the lease of a dead scheduler ends
            wakes.append(self._after(SHARD_LEASE_S))
        return self._next(wakes)

    def _next(self, wakes: Sequence[datetime | None]) -> datetime | None:
        # The same instant again would change nothing: schedules distinguish milliseconds.
        earliest = self.now + timedelta(milliseconds=1)
        return min((max(at, earliest) for at in wakes if at is not None), default=None)

    def _after(self, seconds: float | None) -> datetime | None:
        return None if seconds is None else self.now + timedelta(seconds=max(0.0, seconds))

    # What happened ---------------------------------------------------------------------------------------

    async def executions(self, job: str | None = None, *, states: Sequence[str] = ()) -> list[wire.Execution]:
        """Return executions, the oldest first."""
        found: list[wire.Execution] = []
        cursor = None
        while True:
            page = await execution_views.list_executions(
                self._database, tenant=TENANT, cursor=cursor, limit=PAGE, job=job, states=states
            )
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found[::-1]

    async def live(self) -> list[wire.Execution]:
        """Return the executions that have not ended."""
        return [each for each in await self.executions() if each.state not in FINAL]

    async def assert_enqueued(self, job: str, *, count: int | None = None, **expected: Any) -> list[wire.Execution]:
        """Check that executions of a job wait or run, with these parameters or fields, and return them.

        `params` must be among their parameters; `at` is when they are due. Without `count`, one or more must be found.
        """
        at = expected.pop("at", None)
        due = None if at is None else read_instant(at)
        live = [each for each in await self.live() if each.job == job]
        found = [each for each in live if _matches(each, expected) and (due is None or each.due_at == due)]
        if len(found) == count or (count is None and found):
            return found
        wanted = ", ".join(f"{name}={value!r}" for name, value in {**expected, **({"at": at} if at else {})}.items())
        shown = "\n".join(f"  {e.state}, due {e.due_at.isoformat()}, params={e.params!r}" for e in live) or "  none"
        number = "at least one" if count is None else str(count)
        raise AssertionError(
            f"expected {number} live execution(s) of {job!r}{' with ' + wanted if wanted else ''}, found {len(found)};"
            f" live executions of this job:\n{shown}"
        )

    def artifacts(self, execution_id: UUID) -> Path:
        """Return the folder with the artifacts that functions stored."""
        return self._functions.artifacts / str(execution_id)

    async def _describe(self, live: Sequence[wire.Execution]) -> str:
        lines = [f"{len(live)} execution(s) are left that nothing will end:"]
        for each in live[:10]:
            why = await self.client.why(each.execution_id)
            reasons = "; ".join(reason.message for reason in why.reasons[:3]) or "unknown"
            lines.append(f"  {each.job} {each.execution_id} is {each.state}: {reasons}")
        return "\n".join(lines)


def _declared_in(source: str | ModuleType | Callable[..., Any]) -> tuple[ModuleType, list[str]]:
    if (declaration := getattr(source, "declaration", None)) is not None:
        return sys.modules[source.__module__], [declaration.name]
    module = importlib.import_module(source) if isinstance(source, str) else source
    if not isinstance(module, ModuleType):
        raise Invalid(f"{source!r} is not a module or a declared job; add @ms.job to it")
    names = [name for name, (_, function) in declared.items() if function.__module__ == module.__name__]
    if not names:
        raise Invalid(f"the module {module.__name__} declares no job")
    return module, names


def _matches(execution: wire.Execution, expected: Mapping[str, Any]) -> bool:
    for name, value in expected.items():
        if name == "params":
            given = execution.params or {}
            if any(given.get(key) != each for key, each in value.items()):
                return False
        else:
            with suppress(AttributeError):
                if getattr(execution, name) == value:
                    continue
            return False
    return True
