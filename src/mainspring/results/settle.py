"""Settles ended attempts: the only code path that ends an attempt, for workers and for the rescue.

The same statements decide for both. Each checks session, attempt and state on the row it changes, so a stale result
changes nothing and is counted.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.announce import Announcer
from mainspring.batch import Batcher
from mainspring.domain.execution import is_step
from mainspring.domain.settlement import AttemptResult, Final, LockedExecution, Retry, Settled
from mainspring.domain.workflow.run import ExecutionEnd, StepRef
from mainspring.results.auto_pause import failed_jobs, lock_auto_pausing, pause_failing
from mainspring.results.batch import Report, ResultBatch
from mainspring.results.output_quota import OutputQuotas
from mainspring.results.verdict import verdict
from mainspring.runs.advance import advance
from mainspring.runs.handoff import StepHandoff
from mainspring.runs.plans import PlanCache
from mainspring.runs.successor import SuccessorCache
from mainspring.store import logs, needs, outbox, overlaps, results, triggers
from mainspring.store.db import AWAY, CONFLICTS, Connection, Database
from mainspring.store.definitions import Definitions
from mainspring.store.hints import hint_freed
from mainspring.store.runs import locked_runs
from mainspring.store.subscriptions import Subscriptions
from mainspring.telemetry import metrics
from mainspring.telemetry.spans import Spans

log = structlog.get_logger()

MAX_CONFLICTS = 3
"""Deadlocks or serialization failures in a row before runs are advanced apart from the batch."""
BACKLOG_LIMIT = 10_000
"""With more unsettled results than this, releases of blocked executions and of steps are deferred until the backlog
has drained: outcomes come first."""


@dataclass(slots=True)
class FollowUp:
    """What a batch leads to after its commit."""

    runs: set[UUID] = field(default_factory=set)  # runs that ended in the batch
    deferred: list[ExecutionEnd] = field(default_factory=list)  # ended steps whose runs were not advanced


async def _caught_up() -> None:
    return


class Settler:
    """Settles in batches: reports that arrive while one batch is written make up the next.

    `catch_up` returns once results that travel by a stream are settled. Call it before attempts are declared lost.
    """

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        announcer: Announcer,
        *,
        rng: random.Random | None = None,
        backlog_limit: int = BACKLOG_LIMIT,
        subscriptions: Subscriptions | None = None,
        handoff: ports.DirectHandoff | None = None,
        output: OutputQuotas | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self._output = output
        self._database = database
        self._definitions = definitions
        self._announcer = announcer
        self._rng = rng or random.Random()
        self._backlog_limit = backlog_limit
        self._backlog = 0  # results that are in no batch yet
        self._deferred_jobs: set[UUID] = set()  # jobs whose next blocked execution is still to be released
        self._deferred_ends: list[ExecutionEnd] = []  # ended steps whose runs are still to be advanced
        self._plans = PlanCache()
        self._successors = SuccessorCache()
        self._subscriptions = subscriptions
        self._handoff = handoff
        self._batcher: Batcher[Report, set[UUID]] = Batcher(self._flush, max_items=64, parallel=2)
        self.catch_up: Callable[[], Awaitable[None]] = _caught_up

    async def settle(self, report: Report) -> set[UUID]:
        """Settle a report and return the executions whose results were stale."""
        self._backlog += len(report.ended)
        metrics.RESULTS_PENDING.inc(len(report.ended))
        try:
            return await self._batcher.submit(report)
        finally:
            metrics.RESULTS_PENDING.dec(len(report.ended))

    async def release(self, job_ids: Iterable[UUID]) -> None:
        """Release the next blocked execution of each job that has no other live one. The sweep repeats it."""
        async with self._database.transaction() as connection:
            await overlaps.release_blocked(connection, job_ids=sorted(job_ids))

    async def _flush(self, reports: list[Report]) -> list[set[UUID]]:
        """Settle a batch; repeat it after a deadlock, which changed nothing."""
        self._backlog -= sum(len(report.ended) for report in reports)
        for _ in range(MAX_CONFLICTS):
            try:
                return await self._settle_all(reports)
            except CONFLICTS:
                continue
            except AWAY:
                raise
            except Exception:
                if not any(is_step(e.execution_id) for r in reports for e in r.ended):
                    raise
                log.exception("run.advance_failed", hint="the results of its steps are settled without it")
                break
        return await self._settle_all(reports, defer_runs=True)

    async def _settle_all(self, reports: list[Report], *, defer_runs: bool = False) -> list[set[UUID]]:
        """Settle reports. With `defer_runs` runs are advanced afterwards, so that none can block the results."""
        batch, settled = ResultBatch(reports), Settled()
        since_ms = 0.0 if self._spans is None else self._spans.now_ms()
        follow_up = FollowUp()
        async with StepHandoff(self._handoff, self._successors) as handoff, self._database.hot() as connection:
            if batch.ended and not batch.unsuccessful and not batch.steps and not self._success_has_subscribers():
                appended = await results.settle_succeeded(
                    connection, ended=batch.ended, chunks=batch.output, cut=self._cut, settled=settled
                )
                self._count(appended)
            else:
                if batch.output:
                    self._count(await logs.append_logs(connection, chunks=batch.output, cut=self._cut))
                if batch.ended:
                    follow_up = await self._settle_with_effects(
                        connection, batch, handoff, settled, defer_runs=defer_runs
                    )
            await handoff.send()
            hint_freed(connection, settled.freed)
        if follow_up.runs:
            self._announcer.announce("finished", follow_up.runs)
        await self._release_deferred(follow_up, settled)
        self._announce(batch, settled)
        if self._spans is not None:
            ended = [e for e in batch.ended if e.execution_id in settled.executions]
            self._spans.settled(((e.execution_id, e.attempt, e.outcome) for e in ended), since_ms=since_ms)
        if len(settled.executions) == len(batch.ended):
            return [set() for _ in reports]
        return [{e.execution_id for e in r.ended} - settled.executions for r in reports]

    async def _settle_with_effects(
        self, connection: Connection, batch: ResultBatch, handoff: StepHandoff, settled: Settled, *, defer_runs: bool
    ) -> FollowUp:
        simple = not defer_runs and not batch.unsuccessful and not self._success_has_subscribers()
        if simple and await self._settle_with_successor(connection, batch.ended, handoff, settled):
            return FollowUp()
        async with connection.transaction():
            return await self._settle_batch(connection, batch, handoff, settled, defer_runs=defer_runs)

    def _count(self, appended: Sequence[logs.Appended]) -> None:
        if self._output is not None:
            self._output.add(appended)

    @property
    def _cut(self) -> tuple[int, ...]:
        """Tenants whose quota of output is used up."""
        return () if self._output is None else self._output.cut

    def _success_has_subscribers(self) -> bool:
        """Whether a success must be written to the outbox, or may release or start another job."""
        known = self._subscriptions
        return known is not None and (known.needs or known.successes or known.completions)

    async def _settle_with_successor(
        self, connection: Connection, ended: Sequence[AttemptResult], handoff: StepHandoff, settled: Settled
    ) -> bool:
        """Settle a single step and release its only successor in one statement, if this process knows the successor."""
        if len(ended) > 1:
            return False
        (result,) = ended
        if (found := self._successors.pop(result.execution_id, result.result)) is None:
            return False
        successor, run, plan = found
        line_id = plan.lines.get(successor.next)
        session_id = handoff.reserve(line_id, tenant=run.tenant) if line_id is not None else None
        row = await results.settle_with_successor(
            connection, ended=result, successor=successor, session_id=session_id, line_id=line_id, settled=settled
        )
        if row is None:
            return False
        plan.lines[successor.next] = row["line_id"]
        handoff.released(row, run, plan, StepRef(successor.run_id, successor.next))
        return True

    async def _settle_batch(
        self, connection: Connection, batch: ResultBatch, handoff: StepHandoff, settled: Settled, *, defer_runs: bool
    ) -> FollowUp:
        """Settle any batch in the caller's transaction: results and their effects."""
        pausing, locked = [], []
        if batch.unsuccessful:
            pausing = await lock_auto_pausing(connection, [e.execution_id for e in batch.unsuccessful])
            # All rows in key order before any change: a batch and a rescue may want the same ones.
            locked = await results.lock_results(connection, ended=batch.ended)
        locked_by_settling, follow_up = None, FollowUp()
        if batch.succeeded and len(batch.steps) == len(batch.ended) and not batch.unsuccessful and not defer_runs:
            rows = await results.settle_steps(connection, ended=batch.succeeded, settled=settled)
            locked_by_settling = locked_runs(rows)
        elif batch.succeeded:
            await results.settle_succeeded(connection, ended=batch.succeeded, settled=settled)
        if batch.unsuccessful:
            failed = await self._settle_unsuccessful(connection, batch.unsuccessful, locked, settled)
            paused = await pause_failing(connection, pausing, failed)
            settled.paused = {failed[job_id] for job_id in paused}
        if batch.steps and (defer_runs or self._backlog > self._backlog_limit):
            follow_up.deferred = final_ends(batch.steps, settled)
        elif batch.steps:
            ends = final_ends(batch.steps, settled)
            advanced = await advance(connection, self._plans, ends, handoff=handoff, locked=locked_by_settling)
            settled.chained |= advanced.settled.chained
            settled.freed |= advanced.settled.freed
            follow_up.runs = set(advanced.settled.executions)
        if self._subscriptions is not None:
            if self._subscriptions.needs:
                await needs.release_after(connection, execution_ids=follow_up.runs | settled.executions)
            if self._subscriptions.completions:
                await triggers.notice_ends(connection, execution_ids=follow_up.runs | settled.executions)
            await self._write_outbox(
                connection, self._subscriptions, settled, follow_up.runs, unsuccessful=bool(batch.unsuccessful)
            )
        return follow_up

    async def _settle_unsuccessful(
        self,
        connection: Connection,
        ended: Sequence[AttemptResult],
        locked: Sequence[LockedExecution],
        settled: Settled,
    ) -> dict[UUID, UUID]:
        """Settle by verdict; return the jobs with an execution that failed for good, and that execution."""
        by_id = {e.execution_id: e for e in ended}
        mine = [row for row in locked if row.execution_id in by_id]
        known = await self._definitions.get(((row.job_id, row.version) for row in mine), connection)
        verdicts = [verdict(row, by_id[row.execution_id], known[row.job_id, row.version], self._rng) for row in mine]
        if retries := [v for v in verdicts if isinstance(v, Retry)]:
            await results.settle_retries(connection, retries=retries, settled=settled)
        if final := [v for v in verdicts if isinstance(v, Final)]:
            await results.settle_final(connection, final=final, settled=settled)
        return failed_jobs(mine, final)

    async def _write_outbox(
        self,
        connection: Connection,
        subscriptions: Subscriptions,
        settled: Settled,
        runs: set[UUID],
        *,
        unsuccessful: bool,
    ) -> None:
        """Write subscribed events in the transaction of the change that they report.

        For failures the database is always asked: what is known here may lack a job or a channel that was just created,
        and its first failure would never be reported.
        """
        if subscriptions.successes or unsuccessful:
            await outbox.notify_settled(connection, execution_ids=sorted(runs.union(settled.executions)))
        if unsuccessful:
            await outbox.notify_retrying(connection, execution_ids=sorted(settled.executions))

    async def _release_deferred(self, follow_up: FollowUp, settled: Settled) -> None:
        """Advance deferred runs and release blocked executions, once the backlog is small enough."""
        self._deferred_ends += follow_up.deferred
        if self._deferred_ends and self._backlog <= self._backlog_limit:
            ends, self._deferred_ends = self._deferred_ends, []
            settled.chained |= await self._advance_deferred(ends)
        self._deferred_jobs |= settled.chained
        if self._deferred_jobs and self._backlog <= self._backlog_limit:
            jobs, self._deferred_jobs = self._deferred_jobs, set()
            try:
                await self.release(jobs)
            except (*AWAY, *CONFLICTS) as error:  # the results are committed; the sweep repeats the release
                log.warning("release.deferred", jobs=len(jobs), error=repr(error))

    async def _advance_deferred(self, ends: Sequence[ExecutionEnd]) -> set[UUID]:
        """Advance the runs of steps that were settled without them; return jobs whose next execution may be released.

        The results are committed, so an error here is only logged: the sweep finds these steps in the tables.
        """
        try:
            async with self._database.transaction() as connection:
                settled = (await advance(connection, self._plans, ends)).settled
                await needs.release_after(connection, execution_ids=settled.executions)
                await triggers.notice_ends(connection, execution_ids=settled.executions)
                await outbox.notify_settled(connection, execution_ids=sorted(settled.executions))
                hint_freed(connection, settled.freed)
        except Exception as error:
            log.warning("run.advance_deferred", steps=len(ends), error=repr(error))
            return set()
        if settled.executions:
            self._announcer.announce("finished", settled.executions)
        return settled.chained

    def _announce(self, batch: ResultBatch, settled: Settled) -> None:
        """Publish events and metrics of a settled batch."""
        if settled.paused:
            self._announcer.announce("paused", settled.paused)
        self._announcer.announce("finished", settled.executions)
        if batch.output:
            self._announcer.announce("output", {chunk.execution_id for _, chunk in batch.output})
        metrics.STALE_RESULTS.inc(len(batch.ended) - len(settled.executions))
        for state, n in settled.final.items():
            metrics.JOBS_COMPLETED.labels(state).inc(n)
        ended: Sequence[AttemptResult] = batch.ended
        if len(settled.executions) != len(ended):
            ended = [e for e in ended if e.execution_id in settled.executions]
        metrics.observe_all(metrics.JOB_DURATION, [e.duration_ms / 1000 for e in ended if e.duration_ms is not None])
        for e in ended:
            if e.outcome != "succeeded":
                metrics.EXECUTION_ERRORS.labels(e.outcome).inc()


def final_ends(ended: Sequence[AttemptResult], settled: Settled) -> list[ExecutionEnd]:
    """Return the results among these that were settled as final, in the form that runs need."""
    found = []
    for e in ended:
        if e.execution_id in settled.ended_as:
            found.append(ExecutionEnd(e.execution_id, settled.ended_as[e.execution_id], e.result, e.error))
        elif e.outcome == "succeeded" and e.execution_id in settled.executions:
            found.append(ExecutionEnd(e.execution_id, "succeeded", e.result))
    return found
