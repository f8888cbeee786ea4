"""The loops of the leader duties: pauses, deadlines, submissions, triggers, watched files, backfills, replays,
workflow timers, audit, checks of the doctor, planned starts.

One scheduler at a time runs them. Each duty sleeps until the next instant it knows of or until a notification; with
nothing to do it queries the database every half minute. Losing the lead midway does no harm: every statement checks
its assumptions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from mainspring import ports
from mainspring.announce import Announcer
from mainspring.domain.costs import ALWAYS, PriceWindows
from mainspring.duties.audit_chain import chain_pending, send_heads, sign_heads
from mainspring.duties.backfill_feeder import feed_all
from mainspring.duties.deadlines import skip_overdue
from mainspring.duties.doctor import DoctorRounds
from mainspring.duties.file_watch import FileWatch
from mainspring.duties.pauses import end_pauses
from mainspring.duties.start_planner import StartPlanner
from mainspring.duties.workflow_timers import WorkflowTimers, is_for_a_run
from mainspring.intake.replays import follow_replays
from mainspring.intake.submissions import move_submissions
from mainspring.intake.triggers.completions import decide_pending
from mainspring.service import Loops, Service
from mainspring.store import deadlines, pauses
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.vault.vault import Vault

LONGEST_WAIT_S = 30.0
"""A duty runs at least this often, in case a notification was lost."""
STANDBY_S = 1.0
"""How often a process that does not lead checks, in memory, whether it leads now."""
FOLLOW_S = 1.0
"""While a backfill or replay is running, how often its duty runs without a notification."""
SHORTEST_WAIT_S = 0.25
"""Shortest wait for the next instant, however close it is."""
DEBOUNCE_S = 0.05
"""Shortest wait between two runs of a duty, however many notifications arrive."""


class Duties(Service):
    """Runs each duty in its own loop. The functions that do the work can be repeated at any point."""

    def __init__(
        self,
        database: Database,
        bus: ports.Bus,
        *,
        leads: Callable[[], bool],
        announcer: Announcer | None = None,
        files: FileWatch | None = None,
        vault: Vault | None = None,
        doctor: DoctorRounds | None = None,
        price_windows: PriceWindows = ALWAYS,
    ) -> None:
        self._database = database
        self._vault = vault or Vault()
        self._leads = leads
        self._files = files
        self._doctor = doctor
        self._backfills_open = self._replays_open = False
        self._pause_edited, self._deadline_edited = asyncio.Event(), asyncio.Event()
        self._submitted = asyncio.Event()
        self._definitions = Definitions(database)
        self._backfills_changed = asyncio.Event()
        self._replays_changed = asyncio.Event()
        self._runs_due = asyncio.Event()
        self._delivered, self._watch_edited = asyncio.Event(), asyncio.Event()
        self._audited = asyncio.Event()
        self._timers = WorkflowTimers(database, announcer)
        self._planner, self._window_edited = StartPlanner(database, prices=price_windows), asyncio.Event()
        self._loops = Loops("duties")
        if announcer is not None:
            announcer.add_watch(lambda: (self._backfills_open or self._replays_open) and leads())
        bus.subscribe(ports.SHARDS, self._on_shard, on_gap=self._on_gap)
        bus.subscribe(ports.SUBMISSIONS, lambda _: self._submitted.set(), on_gap=lambda: None)
        bus.subscribe(ports.BACKFILLS, lambda _: self._backfills_changed.set(), on_gap=lambda: None)
        bus.subscribe(ports.REPLAYS, lambda _: self._replays_changed.set(), on_gap=lambda: None)
        bus.subscribe(ports.TRIGGERS, self._on_trigger, on_gap=lambda: None)
        bus.subscribe(ports.AUDIT, lambda _: self._audited.set(), on_gap=lambda: None)
        bus.subscribe(ports.EVENTS, self._on_event, on_gap=lambda: None)
        bus.subscribe(ports.QUEUED, self._on_queued, on_gap=self._runs_due.set)
        bus.subscribe(ports.CANCEL, self._on_cancel, on_gap=lambda: None)
        for channel in (ports.RUNS, ports.FREED):
            bus.subscribe(channel, lambda _: self._runs_due.set(), on_gap=lambda: None)

    async def start(self) -> None:
        for name, duty, changed in self._duties():
            self._loop(name, duty, changed)

    async def run_all(self) -> float | None:
        """Run each duty once; for a process without the loops. Return the seconds until the next one has work."""
        waits = [await duty() for _, duty, _ in self._duties()]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    def _duties(self) -> list[tuple[str, Callable[[], Awaitable[float | None]], asyncio.Event]]:
        return [
            ("pauses", self._end_pauses, self._pause_edited),
            ("overdue", self._skip_overdue, self._deadline_edited),
            ("submissions", self._move_submissions, self._submitted),
            ("backfills", self._feed_backfills, self._backfills_changed),
            ("replays", self._follow_replays, self._replays_changed),
            ("runs", self._timers.run_due, self._runs_due),
            ("triggers", self._decide_deliveries, self._delivered),
            ("audit chain", self._chain_audit, self._audited),
            ("audit heads", self._sign_audit, asyncio.Event()),
            ("run sweep", self._sweep_runs, asyncio.Event()),
            ("starts", self._planner.run_due, self._window_edited),
            *([] if self._files is None else [("files", self._files.look_all, self._watch_edited)]),
            *([] if self._doctor is None else [("doctor", self._doctor.run_due, asyncio.Event())]),
        ]

    async def stop(self) -> None:
        await self._loops.stop()

    def _loop(self, name: str, duty: Callable[[], Awaitable[float | None]], changed: asyncio.Event) -> None:
        self._loops.forever(name, lambda: self._run_once(duty, changed))

    async def _run_once(self, duty: Callable[[], Awaitable[float | None]], changed: asyncio.Event) -> None:
        """Run a duty, then sleep until its next instant or a notification."""
        if not self._leads():
            await asyncio.sleep(STANDBY_S)
            return
        changed.clear()
        wait_s = await duty()
        if wait_s is not None and wait_s <= 0:
            wait_s = STANDBY_S  # something due could not be done: its row is locked, or it failed
        await asyncio.sleep(DEBOUNCE_S)
        with contextlib.suppress(TimeoutError):
            timeout_s = LONGEST_WAIT_S if wait_s is None else min(LONGEST_WAIT_S, max(SHORTEST_WAIT_S, wait_s))
            await asyncio.wait_for(changed.wait(), timeout_s)

    async def _end_pauses(self) -> float | None:
        await end_pauses(self._database)
        async with self._database.connection() as connection:
            return await pauses.next_pause_over_s(connection)

    async def _skip_overdue(self) -> float | None:
        await skip_overdue(self._database)
        async with self._database.connection() as connection:
            return await deadlines.next_overdue_s(connection)

    async def _move_submissions(self) -> float | None:
        await move_submissions(self._database, self._definitions)
        return None

    async def _feed_backfills(self) -> float | None:
        self._backfills_open = await feed_all(self._database) > 0
        return FOLLOW_S if self._backfills_open else None

    async def _follow_replays(self) -> float | None:
        self._replays_open = await follow_replays(self._database)
        return FOLLOW_S if self._replays_open else None

    async def _decide_deliveries(self) -> float | None:
        await decide_pending(self._database)
        return None

    async def _chain_audit(self) -> float | None:
        await chain_pending(self._database)
        return None

    async def _sign_audit(self) -> float | None:
        await sign_heads(self._database, self._vault)
        await send_heads(self._database, self._vault)
        return None

    async def _sweep_runs(self) -> float | None:
        await self._timers.sweep()
        return None

    def _on_queued(self, payload: str) -> None:
        if self._timers.concerns_a_run(payload):
            self._runs_due.set()

    def _on_cancel(self, payload: str) -> None:
        if is_for_a_run(payload):
            self._runs_due.set()

    def _on_trigger(self, payload: str) -> None:
        self._delivered.set()
        if payload == ports.EDIT:
            self._watch_edited.set()

    def _on_shard(self, payload: str) -> None:
        if payload.startswith("edit"):
            self._pause_edited.set()
            self._deadline_edited.set()
            self._window_edited.set()

    def _on_event(self, _: str) -> None:
        # The ended execution may belong to a backfill or replay; while none is open, the event is ignored. For needs,
        # processes of this version publish on RUNS; older ones announce every event.
        if self._backfills_open:
            self._backfills_changed.set()
        if self._replays_open:
            self._replays_changed.set()
        if self._timers.has_needs:
            self._runs_due.set()

    def _on_gap(self) -> None:
        for event in (
            self._pause_edited,
            self._deadline_edited,
            self._submitted,
            self._backfills_changed,
            self._replays_changed,
            self._runs_due,
            self._delivered,
            self._watch_edited,
            self._audited,
        ):
            event.set()
