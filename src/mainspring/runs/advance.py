"""Advances runs: the effects of ended executions on the steps behind them, in the transaction that settled them.

Every run is locked before it changes, so one transaction at a time decides about it. One statement counts an end at all
steps that need it. The steps that this releases, skips or ends follow, level by level, until nothing more changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring.domain.dead_letter import leaves_dead_letter
from mainspring.domain.execution import is_step
from mainspring.domain.settlement import AttemptResult, Final, Settled
from mainspring.domain.template import BoundedValues, fill
from mainspring.domain.workflow.condition import ConditionError
from mainspring.domain.workflow.inputs import RunValues
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.readiness import WEIGHTS, Parents, outcome, verdict
from mainspring.domain.workflow.run import (
    ENGINE_SESSION,
    WHOLE,
    ClosedRun,
    CountedEnds,
    EndCounts,
    ExecutionEnd,
    ItemGroup,
    LockedRuns,
    Run,
    StepEnd,
    StepRef,
    StepRelease,
)
from mainspring.runs.expressions import EXPRESSIONS, EvaluationTime, holds
from mainspring.runs.handoff import StepHandoff
from mainspring.runs.plans import CachedPlan, PlanCache
from mainspring.runs.release import StepOutcome, StepStarts, missing_value, values_of
from mainspring.store import dead_letters, results, run_steps, runs
from mainspring.store.db import Connection
from mainspring.telemetry import metrics

ReadyStep = tuple[StepRef, int, int, int]
"""A step without an open parent, and its parents' counts: ok, failed, skipped."""
NAMED_STEPS = 5
"""Number of failed steps that the reason of a run names."""
MAX_REASON_CHARS = 400
ENDED_AS = {"timed_out": "timed out", "cancelled": "was cancelled", "lost": "was lost"}


@dataclass(slots=True)
class Advanced:
    """Effects of advancing runs: the settled executions of runs that ended, and these runs."""

    settled: Settled = field(default_factory=Settled)
    closed: list[ClosedRun] = field(default_factory=list)


async def advance(
    connection: Connection,
    plans: PlanCache,
    ends: Sequence[ExecutionEnd],
    advanced: Advanced | None = None,
    handoff: StepHandoff | None = None,
    locked: LockedRuns | None = None,
) -> Advanced:
    """Advance the runs of ended executions; a run that ends by this may be a step of another run.

    `locked`: the runs of these executions, if the caller has locked them already.
    """
    advanced = advanced or Advanced()
    while ends:
        if locked is None:
            locked = await runs.lock_runs(connection, execution_ids=[e.execution_id for e in ends])
        (by_id, refs), locked = locked, None
        if not by_id:
            break
        step = await RunAdvance.load(connection, plans, by_id.values(), handoff)
        await step.end({e.execution_id: e.of_step(refs[e.execution_id]) for e in ends if e.execution_id in refs})
        ends = await step.close(advanced)
    return advanced


class RunAdvance:
    """Locked runs, and all changes to them in this transaction."""

    def __init__(
        self,
        connection: Connection,
        locked: dict[UUID, Run],
        plans: dict[UUID, CachedPlan],
        handoff: StepHandoff | None = None,
    ) -> None:
        self._connection = connection
        self._handoff = handoff
        self._runs = locked
        self._plans = plans
        self._starts = StepStarts()
        self._time = EvaluationTime()
        self._ended: dict[UUID, tuple[int, int]] = {}  # runs without an open step: failed steps, successful end steps

    @classmethod
    async def load(
        cls, connection: Connection, plans: PlanCache, locked: Iterable[Run], handoff: StepHandoff | None = None
    ) -> RunAdvance:
        """Load the plans of locked runs."""
        by_run = {}
        runs_by_id = {run.run_id: run for run in locked}
        for run in runs_by_id.values():
            plan = await plans.get(connection, tenant=run.tenant, job_id=run.job_id, version=run.version)
            assert plan is not None, "a run refers to an existing version"
            by_run[run.run_id] = plan
        return cls(connection, runs_by_id, by_run, handoff)

    async def start(self, ready: Sequence[ReadyStep], kept: Sequence[StepEnd] = ()) -> None:
        """Start new runs: release steps without parents, and end the steps that a rerun keeps."""
        await self.finish([*kept, *await self._judge(ready)])

    async def finish(self, ended: Sequence[StepEnd]) -> None:
        """End steps that have no execution to end them, and propagate."""
        done = await run_steps.finish_steps(self._connection, ended=ended) if ended else set()
        await self._propagate([end for end in ended if end.ref in done])

    async def end(self, ended: dict[UUID, StepEnd]) -> None:
        """End the steps of these executions, and propagate."""
        needed_by = [self._plans[end.ref.run_id].plan.children[end.ref.step] for end in ended.values()]
        finished, counted = await run_steps.finish_executions(self._connection, ended=ended, needed_by=needed_by)
        await self._propagate(finished, counted)

    async def _propagate(self, ended: Sequence[StepEnd], counted: CountedEnds | None = None) -> None:
        """Apply the effects of ended steps and items, level by level, until nothing more changes."""
        while True:
            following: list[StepEnd] = []
            if items := [end for end in ended if end.ref.item != WHOLE]:
                following += await self._after_items(items)
            if counted is None and (steps := [end for end in ended if end.ref.item == WHOLE]):
                counted = await self._count(steps)
            if counted is not None:
                self._ended.update({run_id: (failed, ends_ok) for run_id, failed, ends_ok in counted.done})
                following += await self._judge(counted.ready)
                counted = None
            following = following or await self._write()
            if not following:
                return
            done = await run_steps.finish_steps(self._connection, ended=following)
            ended = [end for end in following if end.ref in done]

    async def _count(self, ended: Sequence[StepEnd]) -> CountedEnds:
        children: dict[StepRef, EndCounts] = {}
        of_runs: dict[UUID, tuple[int, int, int]] = {}
        for end in ended:
            run_id, step, weight = end.ref.run_id, end.ref.step, end.weight
            plan = self._plans[run_id].plan
            for child in plan.children[step]:
                tally = children.setdefault(StepRef(run_id, child), EndCounts())
                setattr(tally, weight, getattr(tally, weight) + 1)
            n, failed, ends_ok = of_runs.get(run_id, (0, 0, 0))
            end_ok = weight == "ok" and plan.is_end(step)
            of_runs[run_id] = (n + 1, failed + (weight == "failed"), ends_ok + end_ok)
        return await run_steps.count_steps(self._connection, children=children, of_runs=of_runs)

    async def _judge(self, ready: Sequence[ReadyStep]) -> list[StepEnd]:
        """Start ready steps; return those that end at once, skipped or failed."""
        ended: list[StepEnd] = []
        go: list[tuple[Run, PlanStep]] = []
        for ref, ok, failed, skipped in ready:
            run = self._runs[ref.run_id]
            step = self._plans[ref.run_id].plan.steps[ref.step]
            decision, reason = verdict(step.spec, Parents(ok, failed, skipped), cancelling=run.cancelling)
            if decision == "go":
                go.append((run, step))
            else:
                ended.append(StepEnd(ref, decision, WEIGHTS[decision], reason=reason))
        outcomes = await self._outcomes((run, step.reads) for run, step in go)
        for run, step in go:
            plan = self._plans[run.run_id]
            values = values_of(run, plan, step, outcomes)
            evaluated = await EXPRESSIONS.evaluated((step.spec.when, step.spec.map), values, self._time)
            end = self._starts.start(run, plan, step, values, evaluated)
            ended += [end] if end is not None else []
        return ended

    async def _outcomes(self, wanted: Iterable[tuple[Run, Iterable[int]]]) -> dict[tuple[UUID, int], StepOutcome]:
        refs = list({StepRef(run.run_id, n) for run, numbers in wanted for n in numbers})
        if not refs:
            return {}
        found = await run_steps.step_outcomes(self._connection, refs=refs)
        return {(ref.run_id, ref.step): outcome for ref, outcome in found.items()}

    async def _write(self) -> list[StepEnd]:
        """Write the started steps; return those that end at once: unknown workflows, events already received."""
        starts, self._starts = self._starts, StepStarts()
        ended: list[StepEnd] = []
        for ref, name, wait_s in starts.events:
            event = await runs.event_of_run(self._connection, run_id=ref.run_id, name=name)
            if event is not None:
                payload, _, by = event
                ended.append(StepEnd(ref, "succeeded", "ok", payload, f"sent by {by}", by=by))
            else:
                starts.waits.append((ref, wait_s, None))
        if starts.items:
            await run_steps.insert_run_steps(self._connection, steps=starts.items)
        if starts.groups:
            await run_steps.update_item_groups(self._connection, groups=starts.groups)
        if starts.waits:
            await run_steps.start_waits(self._connection, waits=starts.waits)
        if tasks := [r for r in starts.releases if r.workflow is None]:
            await self._release(tasks)
        if inner := [r for r in starts.releases if r.workflow is not None]:
            for ref in await run_steps.release_workflows(self._connection, releases=inner):
                spec = self._plans[ref.run_id].plan.steps[ref.step].spec
                ended.append(StepEnd(ref, "failed", "failed", reason=f"there is no workflow {spec.workflow!r}"))
        return ended

    async def _release(self, tasks: Sequence[StepRelease]) -> None:
        """Release steps. A single one may go directly to an idle worker; the queue spreads several."""
        first = tasks[0].ref
        plan, tenant = self._plans[first.run_id], self._runs[first.run_id].tenant
        line_id = plan.lines.get(first.step)
        session_id = None
        if self._handoff is not None and len(tasks) == 1 and line_id is not None and tasks[0].delay_s is None:
            session_id = self._handoff.reserve(line_id, tenant=tenant)
        row = await run_steps.release_steps(self._connection, releases=tasks, session_id=session_id, line_id=line_id)
        if row is not None and len(tasks) == 1:
            plan.lines[first.step] = row["line_id"]
            if self._handoff is not None:
                self._handoff.released(row, self._runs[first.run_id], plan, first)

    async def _after_items(self, items: Sequence[StepEnd]) -> list[StepEnd]:
        """Count ended items at their steps; release further items, and return the steps that end by this."""
        counts: dict[StepRef, tuple[int, int]] = {}
        last = {StepRef(end.ref.run_id, end.ref.step): end for end in items}
        for end in items:
            n, failed = counts.get(ref := StepRef(end.ref.run_id, end.ref.step), (0, 0))
            counts[ref] = (n + 1, failed + (end.state != "succeeded"))
        groups = {g.ref: g for g in await run_steps.count_items(self._connection, ended=counts)}
        given_up = [g.ref for g in groups.values() if g.next < g.items and self._gives_up(g)]
        if given_up:
            for group in await run_steps.cancel_items(self._connection, refs=given_up, reason="enough others failed"):
                groups[group.ref] = group
        mapped = [g for g in groups.values() if self._step(g.ref).spec.map is not None]
        ended = await self._mapped_ends([g for g in mapped if g.open == 0])
        ended += await self._release_items([g for g in mapped if g.open > 0 and g.next < g.items])
        for group in groups.values():
            if self._step(group.ref).spec.repeat is not None and group.open == 0:
                ended += await self._after_iteration(group, last[group.ref])
        return ended

    def _step(self, ref: StepRef) -> PlanStep:
        return self._plans[ref.run_id].plan.steps[ref.step]

    def _gives_up(self, group: ItemGroup) -> bool:
        step = self._step(group.ref)
        too_many = step.spec.map is not None and group.failed > step.spec.max_failed
        return too_many or self._runs[group.ref.run_id].cancelling

    async def _mapped_ends(self, groups: Sequence[ItemGroup]) -> list[StepEnd]:
        wanted = [g.ref for g in groups if g.ref.step in self._plans[g.ref.run_id].plan.wanted]
        found = await run_steps.item_outcomes(self._connection, refs=wanted) if wanted else {}
        ended = []
        for g in groups:
            result = [result for _, result, _ in found[g.ref]] if g.ref in found else None
            if self._runs[g.ref.run_id].cancelling:
                ended.append(StepEnd(g.ref, "cancelled", "failed", result, "the run was cancelled"))
            elif g.failed > self._step(g.ref).spec.max_failed:
                ended.append(StepEnd(g.ref, "failed", "failed", result, f"{g.failed} of {g.items} items failed"))
            else:
                ended.append(StepEnd(g.ref, "succeeded", "ok", result))
        return ended

    async def _release_items(self, groups: Sequence[ItemGroup]) -> list[StepEnd]:
        """Release further items; return those that fail at once, because one of their templates has no value.

        The other items of such a step are released in the next round, when the failed ones are counted.
        """
        wanted: dict[StepRef, ItemGroup] = {}  # as they are once their items are released
        for g in groups:
            most = self._step(g.ref).spec.max_parallel or g.items
            running = g.open - (g.items - g.next)
            n = min(most - running, g.items - g.next)
            if n > 0:
                wanted[g.ref] = ItemGroup(g.ref, g.items, g.open, g.failed, g.next + n)
        if not wanted:
            return []
        outcomes = await self._outcomes((self._runs[ref.run_id], self._step(ref).reads) for ref in wanted)
        spans = [(g.ref, g.next, wanted[g.ref].next - g.next) for g in groups if g.ref in wanted]
        releases: dict[StepRef, list[StepRelease]] = {ref: [] for ref in wanted}
        ended: list[StepEnd] = []
        for ref, value in await run_steps.items_to_release(self._connection, wanted=spans):
            run, step, of = self._runs[ref.run_id], self._step(ref), StepRef(ref.run_id, ref.step)
            values = values_of(run, self._plans[ref.run_id], step, outcomes)
            try:
                releases[of].append(self._starts.item(run, step, ref.item, value, values))
            except KeyError as error:
                ended.append(StepEnd(ref, "failed", "failed", reason=missing_value(error)))
        failed = {StepRef(end.ref.run_id, end.ref.step) for end in ended}
        for of, found in releases.items():
            if of not in failed:
                self._starts.releases += found
                self._starts.groups.append(wanted[of])
        return ended

    async def _after_iteration(self, group: ItemGroup, last: StepEnd) -> list[StepEnd]:
        run, step, plan = self._runs[group.ref.run_id], self._step(group.ref), self._plans[group.ref.run_id]
        repeat = step.spec.repeat
        assert repeat is not None
        result = last.result
        if last.state != "succeeded":
            return [StepEnd(group.ref, last.state, WEIGHTS[last.state], result, last.reason)]
        outcomes = await self._outcomes([(run, step.reads - {step.number})])
        values = values_of(run, plan, step, outcomes) | {"result": last.result, "iteration": last.ref.item + 1}
        values["steps"][step.name] = {"state": "succeeded", "result": last.result}
        try:
            if holds(repeat.until, values, await EXPRESSIONS.evaluated([repeat.until], values, self._time)):
                return [StepEnd(group.ref, "succeeded", "ok", result)]
            if run.cancelling:
                return [StepEnd(group.ref, "cancelled", "failed", result, "the run was cancelled")]
            if last.ref.item + 1 < repeat.max:
                self._starts.repeat(run, plan, step, values, last.ref.item + 1)
                return []
        except ConditionError as error:
            return [StepEnd(group.ref, "failed", "failed", result, str(error))]
        except KeyError as error:
            return [StepEnd(group.ref, "failed", "failed", result, missing_value(error))]
        reason = f"not true after {repeat.max} times: {repeat.until}"
        return [StepEnd(group.ref, "failed", "failed", result, reason)]

    async def close(self, advanced: Advanced) -> list[ExecutionEnd]:
        """Close runs without an open step and settle their own executions; return those that are steps of runs."""
        if not self._ended:
            return []
        closing = []
        for run_id, (failed, ends_ok) in self._ended.items():
            state = outcome(failed=failed, ends_ok=ends_ok, ends_as=self._runs[run_id].ends_as)
            reason = await self._failure_reason(run_id, failed) if state in ("failed", "partial") else None
            closing.append((run_id, state, reason))
        closed = await runs.close_runs(self._connection, closing=closing)
        advanced.closed += closed
        for run in closed:
            metrics.RUNS_FINISHED.labels(run.state).inc()
            if run.in_time is not None:
                metrics.RUNS_IN_TIME.labels("yes" if run.in_time else "no").inc()
        ended = {c.run_id: (c, await self._result(c)) for c in closed}
        await settle_run_executions(self._connection, ended.values(), advanced.settled)
        if lettered := [c.run_id for c in closed if leaves_dead_letter(execution_state(c.state))]:
            await dead_letters.attach_step_letters(self._connection, run_ids=lettered)
        return [
            ExecutionEnd(run_id, execution_state(c.state), result, c.reason)
            for run_id, (c, result) in sorted(ended.items())
            if run_id in advanced.settled.executions and is_step(run_id)
        ]

    async def _failure_reason(self, run_id: UUID, failed: int) -> str:
        """Name the first unsuccessful steps, and the reason of the very first."""
        found = await run_steps.failed_steps(self._connection, run_id=run_id, limit=NAMED_STEPS)
        names = [self._plans[run_id].plan.steps[number].name for number, _, _ in found]
        _, state, reason = found[0]
        text = f"{names[0]} {ENDED_AS.get(state, state)}" + (f": {reason}" if reason else "")
        more = ", ".join(names[1:]) + (f" and {failed - NAMED_STEPS} more" if failed > NAMED_STEPS else "")
        return text[:MAX_REASON_CHARS] + (f" (nor did {more} succeed)" if more else "")

    async def _result(self, closed: ClosedRun) -> Any:
        """Return the outputs of the workflow; one that cannot be computed is null."""
        plan = self._plans[closed.run_id]
        if not plan.plan.spec.outputs:
            return None
        run = self._runs[closed.run_id]
        found_values = values_of(run, plan, None, await self._outcomes([(run, plan.plan.wanted)]))
        values = BoundedValues(RunValues(found_values))
        found = {}
        for name, template in plan.plan.spec.outputs.items():
            try:
                found[name] = fill(template, values)
            except KeyError:
                found[name] = None
        return found


def execution_state(state: str) -> Any:
    """Return the state of a run's own execution: `partial` is a failure there."""
    return "failed" if state == "partial" else state


async def settle_run_executions(
    connection: Connection, closed: Iterable[tuple[ClosedRun, Any]], settled: Settled
) -> None:
    """Settle the own executions of closed runs, by the statements that settle any other."""
    succeeded, unsuccessful = [], []
    for c, result in closed:
        lasted_ms = min(2**31 - 1, round(c.lasted_s * 1000))
        state = execution_state(c.state)
        ended = AttemptResult(c.run_id, c.attempt, ENGINE_SESSION, state, lasted_ms, result=result, error=c.reason)
        if state == "succeeded":
            succeeded.append(ended)
        else:
            reason = f"partial: {c.reason}" if c.state == "partial" else c.reason
            unsuccessful.append(Final(ended, state, reason))
    if succeeded:
        succeeded.sort(key=lambda e: e.execution_id)
        await results.settle_succeeded(connection, ended=succeeded, settled=settled)
    if unsuccessful:
        unsuccessful.sort(key=lambda f: f.ended.execution_id)
        await results.settle_final(connection, final=unsuccessful, settled=settled)
