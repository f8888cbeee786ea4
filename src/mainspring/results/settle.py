"""The one door for every ending of an attempt.

Whoever reports it (a worker, the rescue), the same statements decide: session, attempt and state are
checked where the row changes, so a result that somebody else has replaced changes nothing and is counted.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mainspring import ports, wire
from mainspring.announce import Announcer
from mainspring.batch import Batcher
from mainspring.domain.execution import is_step
from mainspring.results.auto_pause import failed_jobs, hold_pausing, pause_failing
from mainspring.results.verdict import verdict
from mainspring.runs.advance import Ending, advance
from mainspring.runs.handoff import Desk
from mainspring.runs.plans import Plans
from mainspring.runs.successor import Links
from mainspring.store import logs, needs, outbox, overlaps, results
from mainspring.store.db import AWAY, CONFLICTS, Connection, Database
from mainspring.store.definitions import Definitions
from mainspring.store.results import Again, Done, Ended, Final, Held
from mainspring.store.runs import Place, held_by
from mainspring.store.subscriptions import Subscriptions
from mainspring.telemetry import metrics

log = structlog.get_logger()

MOST_CONFLICTS = 3
BUSY = 10_000
"""While more results than this wait to be settled, releases wait too, of blocked executions and of steps: outcomes come
first."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one worker tells at once: endings, and output that must be stored before them."""

    session_id: UUID
    ended: Sequence[Ended]
    output: Sequence[wire.Output] = ()


class Batch:
    """Reports that are settled together. In key order, so that two batches never wait for each other in a circle."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.ended = sorted((e for r in reports for e in r.ended), key=lambda e: e.execution_id.int)
        if any(e.outcome != "succeeded" for e in self.ended):
            # Two may tell of the same end, as a guardian and the rescue do: the first one counts.
            first = {(e.execution_id, e.attempt, e.session_id): e for e in reversed(self.ended)}
            self.ended = list(first.values())[::-1]
        self.smooth = [e for e in self.ended if e.outcome == "succeeded"]
        self.rough = [e for e in self.ended if e.outcome != "succeeded"]
        self.stepped = [e for e in self.ended if is_step(e.execution_id)]
        self.output = [report for report in reports if report.output]


@dataclass(slots=True)
class After:
    """What a batch has led to: runs that ended by it, and ends of steps that their runs are still to be told."""

    runs: set[UUID] = field(default_factory=set)
    unheard: list[Ending] = field(default_factory=list)


class Settler:
    """Settles in batches: reports that arrive while one batch is written make up the next."""

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        announcer: Announcer,
        *,
        rng: random.Random | None = None,
        busy: int = BUSY,
        subscriptions: Subscriptions | None = None,
        handoff: ports.DirectHandoff | None = None,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._announcer = announcer
        self._rng = rng or random.Random()
        self._busy = busy
        self._waiting = 0  # results that are in no batch yet
        self._owed: set[UUID] = set()  # jobs whose next blocked execution is still to be released
        self._unheard: list[Ending] = []  # ends of steps that their runs are still to be told
        self._plans = Plans()
        self._links = Links()
        self._subscriptions = subscriptions
        self._handoff = handoff
        self._batcher: Batcher[Report, set[UUID]] = Batcher(self._flush, max_items=64, parallel=2)

    async def settle(self, report: Report) -> set[UUID]:
        """Returns the stale ones: nobody waits for them any more."""
        self._waiting += len(report.ended)
        metrics.RESULTS_PENDING.inc(len(report.ended))
        try:
            return await self._batcher.submit(report)
        finally:
            metrics.RESULTS_PENDING.dec(len(report.ended))

    async def _flush(self, reports: list[Report]) -> list[set[UUID]]:
        """Two transactions that met in a circle lose nothing: the one PostgreSQL gave up is repeated."""
        self._waiting -= sum(len(report.ended) for report in reports)
        for _ in range(MOST_CONFLICTS):
            try:
                return await self._settle_all(reports)
            except CONFLICTS:
                continue
            except AWAY:
                raise
            except Exception:
                if not any(is_step(e.execution_id) for r in reports for e in r.ended):
                    raise
                log.exception("runs could not be moved on; what their steps came to is settled all the same")
                break
        return await self._settle_all(reports, alone=True)

    async def _settle_all(self, reports: list[Report], *, alone: bool = False) -> list[set[UUID]]:
        """Alone: runs hear of it afterwards, so that nothing of them stands in the way."""
        batch, done = Batch(reports), Done()
        heard = self._subscriptions is not None and (self._subscriptions.needs or self._subscriptions.endings)
        after = After()
        async with Desk(self._handoff, self._links) as desk, self._database.hot() as connection:
            plain = not batch.rough and not batch.output and not heard
            if plain and not batch.stepped:
                if batch.smooth:
                    await results.settle_succeeded(connection, ended=batch.smooth, done=done)
            elif alone or not plain or not await self._settle_link(connection, batch, desk, done):
                async with connection.transaction():
                    after = await self._settle_batch(connection, batch, desk, done, alone=alone)
            await desk.hand_over()
            if done.freed:
                await self._tell_freed(connection, done.freed)
        if after.runs:
            self._announcer.tell("finished", after.runs)
        if done.paused:
            self._announcer.tell("paused", done.paused)
        self._unheard += after.unheard
        if self._unheard and self._waiting <= self._busy:
            heard_of, self._unheard = self._unheard, []
            done.chained |= await self._move_on(heard_of)
        self._owed |= done.chained
        if self._owed and self._waiting <= self._busy:
            owed, self._owed = self._owed, set()
            await self._release_soon(owed)
        self._tell(batch.ended, done)
        if batch.output:
            self._announcer.tell("output", {chunk.execution_id for r in batch.output for chunk in r.output})
        if len(done.executions) == len(batch.ended):
            return [set() for _ in reports]
        return [{e.execution_id for e in r.ended} - done.executions for r in reports]

    async def _settle_batch(
        self, connection: Connection, batch: Batch, desk: Desk, done: Done, *, alone: bool
    ) -> After:
        """Any batch, in the caller's transaction: output, endings, and what follows from them."""
        for report in batch.output:
            await logs.append_logs(connection, session_id=report.session_id, output=report.output)
        pausing = await hold_pausing(connection, [e.execution_id for e in batch.rough]) if batch.rough else []
        # All rows in key order before any changes: a batch and a rescue may want the same ones.
        held = await results.lock_results(connection, ended=batch.ended) if batch.rough else []
        holding, after = None, After()
        if batch.smooth and len(batch.stepped) == len(batch.ended) and not batch.rough and not alone:
            holding = held_by(await results.settle_steps(connection, ended=batch.smooth, done=done))
        elif batch.smooth:
            await results.settle_succeeded(connection, ended=batch.smooth, done=done)
        if batch.rough:
            failed = await self._settle_rough(connection, batch.rough, held, done)
            paused = await pause_failing(connection, pausing, failed)
            done.paused = {failed[job_id] for job_id in paused}
        if batch.stepped and (alone or self._waiting > self._busy):
            after.unheard = endings_of(batch.stepped, done)
        elif batch.stepped:
            endings = endings_of(batch.stepped, done)
            moved = (await advance(connection, self._plans, endings, desk=desk, holding=holding)).done
            done.chained |= moved.chained
            done.freed |= moved.freed
            after.runs = set(moved.executions)
        if self._subscriptions is not None:
            if self._subscriptions.needs:
                await needs.release_after(connection, execution_ids=after.runs | done.executions)
            await self._tell_outbox(connection, self._subscriptions, done, after.runs, rough=bool(batch.rough))
        return after

    async def _settle_link(self, connection: Connection, batch: Batch, desk: Desk, done: Done) -> bool:
        """One step alone whose success leads to one other, if that is known here: both in one statement."""
        if len(batch.ended) > 1:
            return False
        (ended,) = batch.ended
        if (found := self._links.after(ended.execution_id, ended.result)) is None:
            return False
        link, run, known = found
        line_id = known.lines.get(link.next)
        session_id = await desk.ask(line_id, tenant=run.tenant) if line_id is not None else None
        row = await results.settle_link(
            connection, ended=ended, link=link, session_id=session_id, line_id=line_id, done=done
        )
        if row is None:
            return False
        known.lines[link.next] = row["line_id"]
        desk.released(row, run, known, Place(link.run_id, link.next))
        return True

    async def _move_on(self, endings: Sequence[Ending]) -> set[UUID]:
        """Tells runs what was settled without them; returns jobs whose next execution it may release.

        What was settled is settled: whatever goes wrong here is the sweep's, which finds it in the tables.
        """
        try:
            async with self._database.transaction() as connection:
                done = (await advance(connection, self._plans, endings)).done
                await needs.release_after(connection, execution_ids=done.executions)
                await outbox.tell_settled(connection, execution_ids=sorted(done.executions))
        except Exception as error:
            log.warning("runs wait for the sweep", steps=len(endings), error=repr(error))
            return set()
        if done.executions:
            self._announcer.tell("finished", done.executions)
        if done.freed:
            async with self._database.connection() as connection:
                await self._tell_freed(connection, done.freed)
        return done.chained

    async def _tell_outbox(
        self, connection: Connection, subscriptions: Subscriptions, done: Done, runs: set[UUID], *, rough: bool
    ) -> None:
        """What somebody subscribed to is written with the change itself."""
        if subscriptions.endings or (rough and subscriptions.troubles):
            await outbox.tell_settled(connection, execution_ids=sorted(runs.union(done.executions)))
        if rough and subscriptions.retries:
            await outbox.tell_retrying(connection, execution_ids=sorted(done.executions))

    async def _release_soon(self, job_ids: Iterable[UUID]) -> None:
        """What was settled is settled, so trouble here is not the worker's: the sweep comes back to it."""
        try:
            await self.release(job_ids)
        except (*AWAY, *CONFLICTS) as error:
            log.warning("blocked executions wait for the sweep", error=repr(error))

    async def _tell_freed(self, connection: Connection, limit_ids: Iterable[int]) -> None:
        """Dispatchers look for the next execution under these keys; if they don't hear it, their slow poll does."""
        with contextlib.suppress(*AWAY):
            await results.tell_freed(connection, limit_ids=sorted(limit_ids))

    async def release(self, job_ids: Iterable[UUID]) -> None:
        """Lets the next blocked execution of each job go, if nothing else of the job lives. The sweep repeats it."""
        async with self._database.transaction() as connection:
            await overlaps.release_blocked(connection, job_ids=sorted(job_ids))

    async def _settle_rough(
        self, connection: Connection, ended: Sequence[Ended], held: Sequence[Held], done: Done
    ) -> dict[UUID, UUID]:
        """The jobs with an execution that failed for good, and that execution."""
        by_id = {e.execution_id: e for e in ended}
        mine = [h for h in held if h.execution_id in by_id]
        known = await self._definitions.get(((h.job_id, h.version) for h in mine), connection)
        verdicts = [verdict(h, by_id[h.execution_id], known[h.job_id, h.version], self._rng) for h in mine]
        if again := [v for v in verdicts if isinstance(v, Again)]:
            await results.settle_again(connection, again=again, done=done)
        if final := [v for v in verdicts if isinstance(v, Final)]:
            await results.settle_final(connection, final=final, done=done)
        return failed_jobs(mine, final)

    def _tell(self, ended: Sequence[Ended], done: Done) -> None:
        self._announcer.tell("finished", done.executions)
        metrics.STALE_RESULTS.inc(len(ended) - len(done.executions))
        for state, n in done.final.items():
            metrics.JOBS_COMPLETED.labels(state).inc(n)
        settled = ended
        if len(done.executions) != len(ended):
            settled = [e for e in ended if e.execution_id in done.executions]
        metrics.observe_all(metrics.JOB_DURATION, [e.duration_ms / 1000 for e in settled if e.duration_ms is not None])
        for e in settled:
            if e.outcome != "succeeded":
                metrics.EXECUTION_ERRORS.labels(e.outcome).inc()


def endings_of(ended: Sequence[Ended], done: Done) -> list[Ending]:
    """Those of the executions of steps that have really ended, and not to be tried again."""
    found = []
    for e in ended:
        if e.execution_id in done.ended_as:
            found.append(Ending(e.execution_id, done.ended_as[e.execution_id], e.result, e.error))
        elif e.outcome == "succeeded" and e.execution_id in done.executions:
            found.append(Ending(e.execution_id, "succeeded", e.result))
    return found
