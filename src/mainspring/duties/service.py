"""What happens by itself to jobs and their executions, done by one scheduler at a time: pauses end, executions that did
not start in time are skipped, backfills are fed, replays are followed to their end, runs begin and their waits end.

Each duty sleeps until the next instant it knows of, or until it is called; while there is nothing to do it looks at
the database every half minute. Losing the lead midway does no harm: every statement checks what it assumes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from mainspring import ports
from mainspring.announce import Announcer
from mainspring.duties.backfill_feeder import feed_all
from mainspring.duties.workflow_timers import WorkflowTimers, is_for_a_run
from mainspring.intake import jobs
from mainspring.intake.replays import follow_replays
from mainspring.service import Loops, Service
from mainspring.store import deadlines, needs, overlaps, pauses
from mainspring.store.db import Database
from mainspring.telemetry import metrics

log = structlog.get_logger()

NET_S = 30.0
"""However the bus does, each duty looks again after this long."""
STAND_BY_S = 1.0
"""So often a process that does not lead asks itself, not the database, whether it does now."""
FEED_S = 1.0
"""While a backfill or a replay is running, it is looked at this often though nobody tells of an ending."""
BREATH_S = 0.05
"""However often it is called, a duty looks no more often than this."""
LEAST_S = 0.25
"""However short the times that jobs ask for, a duty that is not called looks no more often than this."""
BATCH = 500


class Duties(Service):
    """The loops; the functions below do the work, and may be repeated at any point."""

    def __init__(
        self, database: Database, bus: ports.Bus, *, leads: Callable[[], bool], announcer: Announcer | None = None
    ) -> None:
        self._database = database
        self._leads = leads
        self._feeding = self._replaying = False
        self._edited = [asyncio.Event(), asyncio.Event()]
        self._feed = asyncio.Event()
        self._replayed = asyncio.Event()
        self._due = asyncio.Event()
        self._tending = WorkflowTimers(database, announcer)
        self._loops = Loops("duties")
        bus.subscribe(ports.SHARDS, self._hear_edit, on_gap=self._gap)
        bus.subscribe(ports.BACKFILLS, lambda _: self._feed.set(), on_gap=lambda: None)
        bus.subscribe(ports.REPLAYS, lambda _: self._replayed.set(), on_gap=lambda: None)
        bus.subscribe(ports.EVENTS, self._hear_event, on_gap=lambda: None)
        bus.subscribe(ports.QUEUED, self._hear_queued, on_gap=self._due.set)
        bus.subscribe(ports.CANCEL, self._hear_cancel, on_gap=lambda: None)
        for channel in (ports.RUNS, ports.FREED):
            bus.subscribe(channel, lambda _: self._due.set(), on_gap=lambda: None)

    async def start(self) -> None:
        self._loops.forever("pauses", lambda: self._turn(self._end_pauses, self._edited[0]))
        self._loops.forever("overdue", lambda: self._turn(self._skip_overdue, self._edited[1]))
        self._loops.forever("backfills", lambda: self._turn(self._feed_backfills, self._feed))
        self._loops.forever("replays", lambda: self._turn(self._follow_replays, self._replayed))
        self._loops.forever("runs", lambda: self._turn(self._tending.look, self._due))
        self._loops.forever("stray runs", lambda: self._turn(self._sweep_runs, asyncio.Event()))

    async def stop(self) -> None:
        await self._loops.stop()

    async def _turn(self, look: Callable[[], Awaitable[float | None]], called: asyncio.Event) -> None:
        """One look, then sleep until it is worth another."""
        if not self._leads():
            await asyncio.sleep(STAND_BY_S)
            return
        called.clear()
        wait_s = await look()
        if wait_s is not None and wait_s <= 0:
            wait_s = STAND_BY_S  # something was due and could not be done: somebody holds it, or it failed
        await asyncio.sleep(BREATH_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(called.wait(), NET_S if wait_s is None else min(NET_S, max(LEAST_S, wait_s)))

    async def _end_pauses(self) -> float | None:
        await end_pauses(self._database)
        async with self._database.connection() as connection:
            return await pauses.next_pause_over_s(connection)

    async def _skip_overdue(self) -> float | None:
        await skip_overdue(self._database)
        async with self._database.connection() as connection:
            return await deadlines.next_overdue_s(connection)

    async def _feed_backfills(self) -> float | None:
        self._feeding = await feed_all(self._database) > 0
        return FEED_S if self._feeding else None

    async def _follow_replays(self) -> float | None:
        self._replaying = await follow_replays(self._database)
        return FEED_S if self._replaying else None

    async def _sweep_runs(self) -> float | None:
        await self._tending.sweep()
        return None

    def _hear_queued(self, payload: str) -> None:
        if self._tending.concerns(payload):
            self._due.set()

    def _hear_cancel(self, payload: str) -> None:
        if is_for_a_run(payload):
            self._due.set()

    def _hear_edit(self, payload: str) -> None:
        if payload.startswith("edit"):
            for event in self._edited:
                event.set()

    def _hear_event(self, _: str) -> None:
        # Whatever has ended may have been a backfill's; while none is running nobody cares.
        if self._feeding:
            self._feed.set()
        if self._replaying:
            self._replayed.set()
        if self._tending.watches:
            self._due.set()

    def _gap(self) -> None:
        for event in (*self._edited, self._feed, self._replayed, self._due):
            event.set()


async def end_pauses(database: Database) -> int:
    """Resumes, as a person would, every job whose pause is over by database time."""
    ended = 0
    while True:
        async with database.connection() as connection:
            over = await pauses.pauses_over(connection, limit=BATCH)
        before = ended
        for job_id, tenant in over:
            try:
                ended += await jobs.resume(database, job_id, tenant=tenant, if_over=True)
            except Exception as error:  # one job that can't be resumed must not keep the others
                log.warning("could not end a pause", job=str(job_id), error=repr(error))
        if ended == before:
            return ended


async def skip_overdue(database: Database) -> int:
    """Records as skipped what has not started by the time its job allows, and lets go what waited for it.

    The same with what has waited too long for other jobs.
    """
    skipped = 0
    while True:
        async with database.transaction() as connection:
            found = await deadlines.skip_overdue(connection, limit=BATCH)
        async with database.transaction() as connection:
            unmet = await needs.skip_unmet(connection, limit=BATCH)
        if chained := sorted({job_id for _, job_id in [*found, *unmet] if job_id is not None}):
            # After the commit, job rows first, as settling does it; the sweep comes back to what is left out here.
            async with database.transaction() as connection:
                await overlaps.release_blocked(connection, job_ids=chained)
        metrics.FIRES_SKIPPED.labels("start_by").inc(len(found))
        metrics.FIRES_SKIPPED.labels("needs").inc(len(unmet))
        skipped += len(found) + len(unmet)
        if len(found) < BATCH and len(unmet) < BATCH:
            return skipped
