"""Moves runs on: what the end of executions means for the steps behind them, in the transaction that settled them.

A turn holds its runs, so each run is decided by one at a time. What ends is counted down at those that need it by one
statement; whatever that releases, skips or closes follows, level by level, until nothing more does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mainspring.domain.execution import is_step
from mainspring.domain.template import fill
from mainspring.domain.workflow.condition import NotTrue, holds
from mainspring.domain.workflow.inputs import RunValues
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.readiness import WEIGHTS, Parents, outcome, verdict
from mainspring.runs.handoff import Desk
from mainspring.runs.plans import Known, Plans
from mainspring.runs.release import Beginning, Outcome, values_of
from mainspring.store import dead_letters, results, runs
from mainspring.store.db import Connection
from mainspring.store.results import Done, Ended, Final
from mainspring.store.runs import ENGINE, WHOLE, Closed, Finish, Group, Holding, Met, Place, Release, Run, Tally
from mainspring.telemetry import metrics

Ready = tuple[Place, int, int, int]
NAMED = 5
"""So many failed steps are named in the reason of a run."""
MOST_WORDS = 400
ENDED_AS = {"timed_out": "timed out", "cancelled": "was cancelled", "lost": "was lost"}


@dataclass(frozen=True, slots=True)
class Ending:
    """An execution that has ended for good, and that a run waits for."""

    execution_id: UUID
    state: str
    result: Any = None
    reason: str | None = None

    def at(self, place: Place) -> Finish:
        return Finish(place, self.state, WEIGHTS[self.state], self.result, self.reason)


@dataclass(slots=True)
class Moved:
    """What became of runs: their own executions are settled like any other."""

    done: Done = field(default_factory=Done)
    closed: list[Closed] = field(default_factory=list)


async def advance(
    connection: Connection,
    plans: Plans,
    endings: Sequence[Ending],
    moved: Moved | None = None,
    desk: Desk | None = None,
    holding: Holding | None = None,
) -> Moved:
    """Tells runs that executions have ended; a run that ends by it may be a step itself. `holding`: what the caller
    holds already, if it does."""
    moved = moved or Moved()
    while endings:
        if holding is None:
            holding = await runs.hold_runs(connection, execution_ids=[e.execution_id for e in endings])
        (held, places), holding = holding, None
        if not held:
            break
        turn = await Turn.of(connection, plans, held.values(), desk)
        await turn.end({e.execution_id: e.at(places[e.execution_id]) for e in endings if e.execution_id in places})
        endings = await turn.close(moved)
    return moved


class Turn:
    """Some runs, held, and everything that happens to them in this transaction."""

    def __init__(
        self, connection: Connection, held: dict[UUID, Run], known: dict[UUID, Known], desk: Desk | None = None
    ) -> None:
        self._connection = connection
        self._desk = desk
        self._runs = held
        self._known = known
        self._beginning = Beginning()
        self._over: dict[UUID, tuple[int, int]] = {}  # runs with no open step: how many failed, how many ends are ok

    @classmethod
    async def of(cls, connection: Connection, plans: Plans, held: Iterable[Run], desk: Desk | None = None) -> Turn:
        known = {}
        runs_by_id = {run.run_id: run for run in held}
        for run in runs_by_id.values():
            found = await plans.get(connection, tenant=run.tenant, job_id=run.job_id, version=run.version)
            assert found is not None, "a run points to its version"
            known[run.run_id] = found
        return cls(connection, runs_by_id, known, desk)

    async def start(self, ready: Sequence[Ready], kept: Sequence[Finish] = ()) -> None:
        """Steps that need nothing begin; what a rerun keeps has ended already."""
        await self.finish([*kept, *await self._judge(ready)])

    async def finish(self, ended: Sequence[Finish]) -> None:
        """Ends steps that no execution ends, and all that follows from it."""
        done = await runs.finish_steps(self._connection, ended=ended) if ended else set()
        await self.go_on([f for f in ended if f.place in done])

    async def end(self, ended: dict[UUID, Finish]) -> None:
        """Ends what these executions are, and all that follows from it."""
        needed_by = [self._known[f.place.run_id].plan.children[f.place.step] for f in ended.values()]
        finished, met = await runs.finish_executions(self._connection, ended=ended, needed_by=needed_by)
        await self.go_on(finished, met)

    async def go_on(self, ended: Sequence[Finish], met: Met | None = None) -> None:
        """What follows from the end of steps and items: level by level, until nothing more does."""
        while True:
            following: list[Finish] = []
            if items := [f for f in ended if f.place.item != WHOLE]:
                following += await self._after_items(items)
            if met is None and (steps := [f for f in ended if f.place.item == WHOLE]):
                met = await self._count(steps)
            if met is not None:
                self._over.update({run_id: (failed, ends_ok) for run_id, failed, ends_ok in met.done})
                following += await self._judge(met.ready)
                met = None
            following = following or await self._write()
            if not following:
                return
            done = await runs.finish_steps(self._connection, ended=following)
            ended = [f for f in following if f.place in done]

    async def _count(self, ended: Sequence[Finish]) -> Met:
        needing: dict[Place, Tally] = {}
        of_runs: dict[UUID, tuple[int, int, int]] = {}
        for finish in ended:
            run_id, step, weight = finish.place.run_id, finish.place.step, finish.weight
            plan = self._known[run_id].plan
            for child in plan.children[step]:
                tally = needing.setdefault(Place(run_id, child), Tally())
                setattr(tally, weight, getattr(tally, weight) + 1)
            n, failed, ends_ok = of_runs.get(run_id, (0, 0, 0))
            end_ok = weight == "ok" and plan.is_end(step)
            of_runs[run_id] = (n + 1, failed + (weight == "failed"), ends_ok + end_ok)
        return await runs.count_steps(self._connection, needing=needing, of_runs=of_runs)

    # What may begin ----------------------------------------------------------------------------------

    async def _judge(self, ready: Sequence[Ready]) -> list[Finish]:
        """Begins steps that nothing is open before; returns those that end at once: skipped, or wrong."""
        ended: list[Finish] = []
        go: list[tuple[Run, PlanStep]] = []
        for place, ok, failed, skipped in ready:
            run = self._runs[place.run_id]
            step = self._known[place.run_id].plan.steps[place.step]
            what, why = verdict(step.spec, Parents(ok, failed, skipped), cancelling=run.cancelling)
            if what == "go":
                go.append((run, step))
            else:
                ended.append(Finish(place, what, WEIGHTS[what], reason=why))
        outcomes = await self._outcomes((run, step.reads) for run, step in go)
        for run, step in go:
            known = self._known[run.run_id]
            finish = self._beginning.begin(run, known, step, values_of(run, known, step, outcomes))
            ended += [finish] if finish is not None else []
        return ended

    async def _outcomes(self, wanted: Iterable[tuple[Run, Iterable[int]]]) -> dict[tuple[UUID, int], Outcome]:
        places = list({Place(run.run_id, n) for run, numbers in wanted for n in numbers})
        if not places:
            return {}
        found = await runs.step_outcomes(self._connection, places=places)
        return {(p.run_id, p.step): o for p, o in found.items()}

    async def _write(self) -> list[Finish]:
        """Writes what has begun; returns what could not, and events that had come already."""
        begun, self._beginning = self._beginning, Beginning()
        ended: list[Finish] = []
        for place, name, wait_s in begun.events:
            event = await runs.event_of_run(self._connection, run_id=place.run_id, name=name)
            if event is not None:
                ended.append(self.event(place, *event))
            else:
                begun.waits.append((place, wait_s, None))
        if begun.items:
            await runs.insert_run_steps(self._connection, steps=begun.items)
        if begun.groups:
            await runs.open_groups(self._connection, groups=begun.groups)
        if begun.waits:
            await runs.wait_steps(self._connection, waits=begun.waits)
        if tasks := [r for r in begun.releases if r.workflow is None]:
            await self._release(tasks)
        if inner := [r for r in begun.releases if r.workflow is not None]:
            for place in await runs.release_workflows(self._connection, go=inner):
                spec = self._known[place.run_id].plan.steps[place.step].spec
                ended.append(Finish(place, "failed", "failed", reason=f"there is no workflow {spec.workflow!r}"))
        return ended

    async def _release(self, tasks: Sequence[Release]) -> None:
        """What is alone may go straight to a worker that waits here; what comes together is spread by the queue."""
        first = tasks[0].place
        known, tenant = self._known[first.run_id], self._runs[first.run_id].tenant
        line_id = known.lines.get(first.step)
        session_id = None
        if self._desk is not None and len(tasks) == 1 and line_id is not None and tasks[0].delay_s is None:
            session_id = await self._desk.ask(line_id, tenant=tenant)
        row = await runs.release_steps(self._connection, go=tasks, session_id=session_id, line_id=line_id)
        if row is not None and len(tasks) == 1:
            known.lines[first.step] = row["line_id"]
            if self._desk is not None:
                self._desk.released(row, self._runs[first.run_id], known, first)

    def event(self, place: Place, payload: Any, at: object, by: str) -> Finish:
        return Finish(place, "succeeded", "ok", payload, f"sent by {by}", by=by)

    # Mapped and repeated steps -----------------------------------------------------------------------

    async def _after_items(self, items: Sequence[Finish]) -> list[Finish]:
        counts: dict[Place, tuple[int, int]] = {}
        last = {Place(f.place.run_id, f.place.step): f for f in items}
        for f in items:
            n, failed = counts.get(place := Place(f.place.run_id, f.place.step), (0, 0))
            counts[place] = (n + 1, failed + (f.state != "succeeded"))
        groups = {g.place: g for g in await runs.count_items(self._connection, ended=counts)}
        stop = [g.place for g in groups.values() if g.next < g.items and self._gives_up(g)]
        if stop:
            for group in await runs.drop_items(self._connection, places=stop, reason="enough others failed"):
                groups[group.place] = group
        mapped = [g for g in groups.values() if self._step(g.place).spec.map is not None]
        ended = await self._mapped_ends([g for g in mapped if g.open == 0])
        await self._release_items([g for g in mapped if g.open > 0 and g.next < g.items])
        for group in groups.values():
            if self._step(group.place).spec.repeat is not None and group.open == 0:
                ended += await self._after_iteration(group, last[group.place])
        return ended

    def _step(self, place: Place) -> PlanStep:
        return self._known[place.run_id].plan.steps[place.step]

    def _gives_up(self, group: Group) -> bool:
        step = self._step(group.place)
        too_many = step.spec.map is not None and group.failed > step.spec.max_failed
        return too_many or self._runs[group.place.run_id].cancelling

    async def _mapped_ends(self, groups: Sequence[Group]) -> list[Finish]:
        wanted = [g.place for g in groups if g.place.step in self._known[g.place.run_id].plan.wanted]
        found = await runs.item_outcomes(self._connection, places=wanted) if wanted else {}
        ended = []
        for g in groups:
            result = [result for _, result, _ in found[g.place]] if g.place in found else None
            if self._runs[g.place.run_id].cancelling:
                ended.append(Finish(g.place, "cancelled", "failed", result, "the run was cancelled"))
            elif g.failed > self._step(g.place).spec.max_failed:
                ended.append(Finish(g.place, "failed", "failed", result, f"{g.failed} of {g.items} items failed"))
            else:
                ended.append(Finish(g.place, "succeeded", "ok", result))
        return ended

    async def _release_items(self, groups: Sequence[Group]) -> None:
        wanted = []
        for g in groups:
            most = self._step(g.place).spec.max_parallel or g.items
            running = g.open - (g.items - g.next)
            n = min(most - running, g.items - g.next)
            if n > 0:
                wanted.append((g.place, g.next, n))
                self._beginning.groups.append(Group(g.place, g.items, g.open, g.failed, g.next + n))
        if not wanted:
            return
        outcomes = await self._outcomes((self._runs[p.run_id], self._step(p).reads) for p, _, _ in wanted)
        for place, value in await runs.items_to_release(self._connection, wanted=wanted):
            run, step = self._runs[place.run_id], self._step(place)
            values = values_of(run, self._known[place.run_id], step, outcomes)
            self._beginning.release_item(run, step, place.item, value, values)

    async def _after_iteration(self, group: Group, last: Finish) -> list[Finish]:
        run, step, known = self._runs[group.place.run_id], self._step(group.place), self._known[group.place.run_id]
        repeat = step.spec.repeat
        assert repeat is not None
        result = last.result
        if last.state != "succeeded":
            return [Finish(group.place, last.state, WEIGHTS[last.state], result, last.reason)]
        outcomes = await self._outcomes([(run, step.reads - {step.number})])
        values = values_of(run, known, step, outcomes) | {"result": last.result, "iteration": last.place.item + 1}
        values["steps"][step.name] = {"state": "succeeded", "result": last.result}
        try:
            if holds(repeat.until, values):
                return [Finish(group.place, "succeeded", "ok", result)]
            if run.cancelling:
                return [Finish(group.place, "cancelled", "failed", result, "the run was cancelled")]
            if last.place.item + 1 < repeat.max:
                self._beginning.repeat(run, known, step, values, last.place.item + 1)
                return []
        except NotTrue as error:
            return [Finish(group.place, "failed", "failed", result, str(error))]
        except KeyError as error:
            return [Finish(group.place, "failed", "failed", result, f"{error.args[0]} is not there")]
        reason = f"not true after {repeat.max} times: {repeat.until}"
        return [Finish(group.place, "failed", "failed", result, reason)]

    # The end of a run --------------------------------------------------------------------------------

    async def close(self, moved: Moved) -> list[Ending]:
        """Ends the runs that have no open step, and settles their own executions; returns those that are steps."""
        if not self._over:
            return []
        closing = []
        for run_id, (failed, ends_ok) in self._over.items():
            state = outcome(failed=failed, ends_ok=ends_ok, ends_as=self._runs[run_id].ends_as)
            words = await self._what_failed(run_id, failed) if state in ("failed", "partial") else None
            closing.append((run_id, state, words))
        closed = await runs.close_runs(self._connection, closing=closing)
        moved.closed += closed
        for run in closed:
            metrics.RUNS_FINISHED.labels(run.state).inc()
            if run.in_time is not None:
                metrics.RUNS_IN_TIME.labels("yes" if run.in_time else "no").inc()
        ended = {c.run_id: (c, await self._result(c)) for c in closed}
        await settle_heads(self._connection, ended.values(), moved.done)
        if buried := [c.run_id for c in closed if head_state(c.state) in results.FAILED]:
            await dead_letters.tie_letters(self._connection, run_ids=buried)
        return [
            Ending(run_id, head_state(c.state), result, c.reason)
            for run_id, (c, result) in sorted(ended.items())
            if run_id in moved.done.executions and is_step(run_id)
        ]

    async def _what_failed(self, run_id: UUID, failed: int) -> str:
        """The first steps that did not succeed, by name, and why the very first did not."""
        found = await runs.failed_steps(self._connection, run_id=run_id, limit=NAMED)
        names = [self._known[run_id].plan.steps[number].name for number, _, _ in found]
        _, state, reason = found[0]
        words = f"{names[0]} {ENDED_AS.get(state, state)}" + (f": {reason}" if reason else "")
        more = ", ".join(names[1:]) + (f" and {failed - NAMED} more" if failed > NAMED else "")
        return words[:MOST_WORDS] + (f" (nor did {more} succeed)" if more else "")

    async def _result(self, closed: Closed) -> Any:
        """What the workflow gives: its outputs, those that are there."""
        known = self._known[closed.run_id]
        if not known.plan.spec.outputs:
            return None
        run = self._runs[closed.run_id]
        values = RunValues(values_of(run, known, None, await self._outcomes([(run, known.plan.wanted)])))
        found = {}
        for name, template in known.plan.spec.outputs.items():
            try:
                found[name] = fill(template, values)
            except KeyError:
                found[name] = None
        return found


def head_state(state: str) -> Any:
    """A run's state as its execution has it."""
    return "failed" if state == "partial" else state


async def settle_heads(connection: Connection, closed: Iterable[tuple[Closed, Any]], done: Done) -> None:
    """The execution that a run is ends with it, by the statements that end any other."""
    smooth, rough = [], []
    for c, result in closed:
        lasted_ms = min(2**31 - 1, round(c.lasted_s * 1000))
        state = head_state(c.state)
        ended = Ended(c.run_id, c.attempt, ENGINE, state, lasted_ms, result=result, error=c.reason)
        if state == "succeeded":
            smooth.append(ended)
        else:
            reason = f"partial: {c.reason}" if c.state == "partial" else c.reason
            rough.append(Final(ended, state, reason))
    if smooth:
        await results.settle_succeeded(connection, ended=sorted(smooth, key=lambda e: e.execution_id), done=done)
    if rough:
        rough.sort(key=lambda f: f.ended.execution_id)
        await results.settle_final(connection, final=rough, done=done)
