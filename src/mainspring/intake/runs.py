"""What people do with runs: start, look, approve, skip, cancel, repeat."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.duration import format_duration, parse_duration
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound, invalid
from mainspring.domain.params import given_problems
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.readiness import Weight
from mainspring.domain.workflow.run import WHOLE, ExecutionEnd, Run, StepEnd, StepRef
from mainspring.domain.workflow.spec import RunState
from mainspring.intake.executions import Note, Submission, insert_one
from mainspring.intake.executions import cancel as cancel_execution
from mainspring.runs.advance import Advanced, RunAdvance, advance
from mainspring.runs.plans import CachedPlan, PlanCache
from mainspring.runs.start import start_runs
from mainspring.store import (
    audit,
    charts,
    dead_letters,
    executions,
    lines,
    needs,
    outbox,
    overlaps,
    results,
    run_steps,
    runs,
)
from mainspring.store.db import AWAY, CONFLICTS, Connection, Database
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.views import run_timelines
from mainspring.views.pending_runs import AHEAD, listed, no_steps, unbegun
from mainspring.views.refs import check_limit, execution_id, is_id, parse_cursor
from mainspring.views.workflows import row_of

OPEN = ("running", "cancelling")
FAILED = ("failed", "timed_out", "lost", "cancelled")
KEPT = ("succeeded", "skipped")
"""What a rerun takes over from the run before, unless it lies behind what is done again."""
LISTED: tuple[str, ...] = ("queued", *get_args(RunState))


@dataclass(frozen=True, slots=True)
class Deed:
    """What a person did to a step, for the audit."""

    action: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Glance:
    """A run without its steps, and how each of these is shown: its place, its name, its state."""

    run: wire.Run
    steps: Sequence[tuple[tuple[int, int], str, str]] = ()


class Runs:
    """Runs of workflows as one process deals with them."""

    def __init__(self, database: Database, announcer: Announcer | None = None) -> None:
        self._database = database
        self._announcer = announcer
        self._plans = PlanCache()

    async def start(self, ref: str, request: wire.RunRequest, *, tenant: int, by: str) -> wire.Run:
        """Starts a run now; the same key is answered with the same run for a day."""
        row = await row_of(self._database, ref, tenant=tenant)
        async with self._database.connection() as connection:
            known = await self._plans.get(connection, tenant=tenant, job_id=row.job_id, version=row.version)
        if known is None or row.deleted_at is not None:
            raise NotFound(f"there is no workflow {ref!r}")
        problems = given_problems(known.plan.spec.params, frozenset(), request.params or {})
        if problems or (request.params and not known.plan.spec.params):
            first = problems[0].message if problems else "the workflow has no parameters"
            raise Invalid(first, problems=tuple(problems))
        note = None if request.reason is None else Note.of(row, request.reason)
        submission = Submission(tenant, by, row.job_id, None, request.params, note=note)
        async with self._turn() as (connection, moved):
            run_id = await insert_one(connection, submission, request.key)
            if row.spec.concurrency is None:
                await start_runs(connection, self._plans, [run_id], advanced=moved)
        return await self.get(run_id, tenant=tenant)

    async def start_due(self, execution_ids: Sequence[UUID], limit_id: int | None) -> int:
        """Starts what a schedule, a backfill or another run has queued, as far as its concurrency key allows."""
        async with self._turn() as (connection, moved):
            if limit_id is not None:
                (limit,) = await lines.lock_limits(connection, limit_ids=[limit_id])
                taken = (await lines.count_holders(connection, limit_ids=[limit_id]))[limit_id]
                execution_ids = execution_ids[: max(0, limit.most - taken)]
            if execution_ids:
                await start_runs(connection, self._plans, execution_ids, advanced=moved)
        return len(execution_ids)

    async def rerun(self, run_id: UUID, request: wire.Rerun, *, tenant: int, by: str) -> wire.Run:
        """A new run of the same version and params that keeps what had succeeded before a step."""
        async with self._database.connection() as connection:
            row = await self._row(connection, run_id, tenant=tenant)
            if row["state"] in OPEN:
                raise Conflict("the run has not ended yet", code="still_open")
            if row["deleted_at"] is not None:
                raise Conflict(f"{row['name']} was deleted: apply it again to run it", code="workflow_deleted")
            known = await self._plans.get(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            assert known is not None, "a run points to its version"
            places = [StepRef(run_id, step.number) for step in known.plan.steps]
            outcomes = await run_steps.step_outcomes(connection, refs=places)
        again = _done_again(known, {p.step: o[0] for p, o in outcomes.items()}, request.from_step)
        kept = {p.step: _kept(p, o, by) for p, o in outcomes.items() if p.step not in again and o[0] in KEPT}
        submission = Submission(tenant, by, row["job_id"], None, row["params"], row["fire_at"])
        async with self._turn() as (connection, moved):
            letters = await dead_letters.hold_dead_letters(
                connection, tenant=tenant, by=by, choice=DeadLetterFilter(ids=[run_id], limit=1)
            )
            new_id = await insert_one(connection, submission, None)
            await _refuse_full(connection, new_id, tenant=tenant)
            if letters:  # nobody else works on it: the new run decides what becomes of it
                await dead_letters.mark_replayed(connection, tenant=tenant, replayed=[(run_id, new_id)], by=by)
                await dead_letters.close_attached(
                    connection, tenant=tenant, ids=[run_id], state="superseded", by=by, reason="its run was repeated"
                )
            await start_runs(
                connection, self._plans, [new_id], rerun=(run_id, row["version"]), kept=kept, advanced=moved
            )
            await audit.record(
                connection,
                "run.rerun",
                run_id,
                tenant=tenant,
                by=by,
                name=row["name"],
                new_run_id=str(new_id),
                from_step=request.from_step,
            )
        return await self.get(new_id, tenant=tenant)

    # Deciding ----------------------------------------------------------------------------------------

    async def decide(
        self,
        run_id: UUID,
        name: str,
        decision: wire.Decision,
        *,
        tenant: int,
        by: str,
        scopes: Sequence[str],
        approved: bool,
    ) -> wire.Run:
        """A person answers an approval; with the right its step asks for."""

        def answer(step: PlanStep, state: str) -> StepEnd | None:
            approval = step.spec.approval
            if approval is None:
                raise Conflict(f"the step {name!r} waits for no approval", code="no_approval")
            _refuse_others(step, scopes)
            if state != "waiting":
                return None
            given = {"approved": approved, "by": by, "note": decision.note}
            words = f"{'approved' if approved else 'rejected'} by {by}" + (
                f": {decision.note}" if decision.note else ""
            )
            place = StepRef(run_id, step.number)
            if approved:
                return StepEnd(place, "succeeded", "ok", given, words, by)
            return StepEnd(place, "failed", "failed", given, words, by)

        deed = Deed("step.approve" if approved else "step.reject", by, decision.note)
        return await self._end_step(run_id, name, answer, deed, tenant=tenant)

    async def skip(
        self, run_id: UUID, name: str, reason: str, *, tenant: int, by: str, scopes: Sequence[str] = ()
    ) -> wire.Run:
        """A step is not executed, and those behind it go on as if it had been; they can see it by its flag."""
        return await self._override(run_id, name, "skipped", "skipped", reason, None, scopes, tenant=tenant, by=by)

    async def force_complete(
        self, run_id: UUID, name: str, reason: str, result: Any, *, tenant: int, by: str, scopes: Sequence[str] = ()
    ) -> wire.Run:
        """A step that has not ended counts as succeeded."""
        return await self._override(run_id, name, "succeeded", "forced", reason, result, scopes, tenant=tenant, by=by)

    async def _override(
        self,
        run_id: UUID,
        name: str,
        state: str,
        flag: str,
        reason: str,
        result: Any,
        scopes: Sequence[str],
        *,
        tenant: int,
        by: str,
    ) -> wire.Run:
        if not reason.strip():
            raise invalid("/reason", "why is not said", hint="others will want to know")
        words = f"{'skipped' if flag == 'skipped' else 'completed'} by {by}: {reason}"

        def override(step: PlanStep, old: str) -> StepEnd | None:
            _refuse_others(step, scopes)  # who may not approve may not go around it either
            if old not in ("blocked", "waiting", "running"):
                return None
            weight: Weight = "ok"
            return StepEnd(StepRef(run_id, step.number), state, weight, result, words, by, flag)

        deed = Deed("step.skip" if flag == "skipped" else "step.force_complete", by, reason)
        return await self._end_step(run_id, name, override, deed, tenant=tenant)

    async def _end_step(
        self, run_id: UUID, name: str, judge: Callable[[PlanStep, str], StepEnd | None], deed: Deed, *, tenant: int
    ) -> wire.Run:
        """Ends a step by hand. What lives of it is held first, as settling takes it, and ends too."""
        async with self._turn() as (connection, moved):
            number = await self._number(connection, run_id, name, tenant=tenant)
            steps = await run_steps.open_steps(connection, run_id=run_id)
            mine = [e for place, _, e in steps if place.step == number and e is not None]
            live = await run_steps.lock_executions(connection, execution_ids=mine)
            run, known = await self._hold(connection, run_id, tenant=tenant)
            place = StepRef(run_id, number)
            found = await run_steps.step_state(connection, ref=place)
            assert found is not None, "a run has all its steps"
            finish = judge(known.plan.steps[number], found[0])
            if finish is None or run.state not in OPEN:
                words = f"the step {name!r} is {found[0].replace('_', ' ')}, so nothing was changed"
                hint = "; once the run has ended, mainspring runs rerun repeats it" if found[0] in FAILED else ""
                raise Conflict(words + hint, code="not_waiting")
            await run_steps.cancel_items(connection, refs=[place], reason=finish.reason or "")
            for execution_id, state in live.items():
                stop = executions.cancel_running if state == "running" else executions.cancel_pending
                await stop(connection, tenant=tenant, execution_id=execution_id, reason=finish.reason or "")
            await self._finish(connection, run, [finish], moved)
            await audit.record(
                connection,
                deed.action,
                run_id,
                tenant=tenant,
                by=deed.by,
                name=f"{known.plan.spec.name}.{name}",
                reason=deed.reason,
                step=name,
                state=found[0],
            )
        return await self.get(run_id, tenant=tenant)

    async def _number(self, connection: Connection, run_id: UUID, name: str, *, tenant: int) -> int:
        row = await self._row(connection, run_id, tenant=tenant)
        known = await self._plans.get(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
        assert known is not None, "a run points to its version"
        return _step(known, name).number

    async def _row(self, connection: Connection, run_id: UUID, *, tenant: int) -> Any:
        """The row of a run that has begun."""
        row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None:
            raise await no_steps(connection, self._plans, run_id, tenant=tenant)
        return row

    async def event(self, run_id: UUID, name: str, payload: Any, *, tenant: int, by: str) -> wire.Run:
        """An event for a run: the step that waits for it goes on, or will when it comes to it. Once is enough.

        A run that is still queued takes it too: its execution is held, so that it can't begin without the event.
        """
        async with self._turn() as (connection, moved):
            ahead = await self._ahead(connection, run_id, tenant=tenant)
            run, known = (None, ahead) if ahead is not None else await self._hold(connection, run_id, tenant=tenant)
            waiting = [s for s in known.plan.steps if s.spec.event is not None and s.spec.event.name == name]
            if not waiting:
                names = sorted({s.spec.event.name for s in known.plan.steps if s.spec.event is not None})
                others = f"; it waits for {', '.join(names)}" if names else ""
                raise NotFound(f"nothing in this run waits for an event {name!r}{others}")
            if run is not None and run.state not in OPEN:
                raise Conflict(f"the run has already ended: {run.state}", code="already_final")
            if not await runs.insert_run_event(
                connection, tenant=tenant, run_id=run_id, name=name, payload=payload, by=by
            ):
                first = await runs.event_of_run(connection, run_id=run_id, name=name)
                assert first is not None
                words = f"the event {name!r} was received from {first[2]} at {first[1].isoformat()}"
                raise Conflict(f"{words}; this one changes nothing", code="event_repeated")
            ended = []
            for step in waiting:
                found = await run_steps.step_state(connection, ref=StepRef(run_id, step.number))
                if found is not None and found[0] == "waiting":
                    ended.append(StepEnd(StepRef(run_id, step.number), "succeeded", "ok", payload, f"sent by {by}", by))
            if run is not None:
                await self._finish(connection, run, ended, moved)
            await audit.record(
                connection, "run.event", run_id, tenant=tenant, by=by, name=known.plan.spec.name, event=name
            )
        return await self.get(run_id, tenant=tenant)

    async def _ahead(self, connection: Connection, run_id: UUID, *, tenant: int) -> CachedPlan | None:
        """The workflow of a run that has not begun, whose execution is then held; None if it has begun."""
        found = await executions.execution_by_id(connection, tenant=tenant, execution_id=run_id)
        if found is None or found.state not in AHEAD:
            return None
        if (await run_steps.lock_executions(connection, execution_ids=[run_id])).get(run_id) not in AHEAD:
            return None
        return await self._plans.get(connection, tenant=tenant, job_id=found.job_id, version=found.version)

    # Ending ------------------------------------------------------------------------------------------

    async def cancel(
        self, run_id: UUID, *, tenant: int, by: str, reason: str = "", ends_as: str = "cancelled"
    ) -> wire.Run:
        """Ends a run: what has not begun never will, what runs is asked to end; steps that always run still do."""
        if await self._waits(run_id, tenant=tenant):
            await cancel_execution(self._database, run_id, tenant=tenant, by=by, reason=reason)
            return await self.get(run_id, tenant=tenant)
        async with self._turn() as (connection, _):
            run, known = await self._hold(connection, run_id, tenant=tenant)
            words = f"cancelled by {by}" + (f": {reason}" if reason else "")
            if ends_as != "cancelled":
                most_s = parse_duration(known.plan.spec.timeout or 0)
                words = f"timed out: it took longer than {format_duration(most_s)}"
            if run.state not in OPEN:
                raise Conflict(f"the run has already ended: {run.state}", code="already_final")
            await runs.cancel_run(connection, tenant=tenant, run_id=run_id, ends_as=ends_as, reason=words)
            await audit.record(
                connection,
                "run.cancel",
                run_id,
                tenant=tenant,
                by=by,
                name=known.plan.spec.name,
                reason=reason or (words if ends_as != "cancelled" else None),
            )
        await self.carry_out_cancel(run_id, tenant=tenant)
        return await self.get(run_id, tenant=tenant)

    async def _waits(self, run_id: UUID, *, tenant: int) -> bool:
        """Whether a run has not begun yet."""
        async with self._database.connection() as connection:
            found = await self._found(connection, run_id, tenant=tenant)
        return isinstance(found, wire.Run) and found.state == "queued"

    async def carry_out_cancel(self, run_id: UUID, *, tenant: int) -> None:
        """Ends what a cancelled run still has: executions first, then the run, as settling takes them. Repeatable."""
        inner: list[UUID] = []
        async with self._turn() as (connection, moved):
            steps = await run_steps.open_steps(connection, run_id=run_id)
            live = await run_steps.lock_executions(connection, execution_ids=[e for _, _, e in steps if e is not None])
            run, known = await self._hold(connection, run_id, tenant=tenant)
            if run.state != "cancelling":
                return
            words = "the run timed out" if run.ends_as == "timed_out" else "the run was cancelled"
            gone: list[ExecutionEnd] = []
            for execution_id, state in sorted(live.items()):
                if state != "running":
                    await executions.cancel_pending(connection, tenant=tenant, execution_id=execution_id, reason=words)
                    gone.append(ExecutionEnd(execution_id, "cancelled", None, words))
                elif await runs.run_by_id(connection, tenant=tenant, run_id=execution_id) is not None:
                    inner.append(execution_id)
                else:
                    await executions.cancel_running(connection, tenant=tenant, execution_id=execution_id, reason=words)
            ended = [
                StepEnd(place, "cancelled", "failed", reason=words)
                for place, state, _ in steps
                if place.item == WHOLE and _stops(known, place, state)
            ]
            await self._finish(connection, run, ended, moved)
            await advance(connection, self._plans, gone, moved)
        for inner_id in inner:
            try:
                await self.cancel(inner_id, tenant=tenant, by="the run around it")
            except Conflict:
                continue

    async def wake(self, place: StepRef, *, tenant: int) -> None:
        """The time of a waiting step has come: a wait is over, an approval or an event did not come."""
        async with self._turn() as (connection, moved):
            run, known = await self._hold(connection, place.run_id, tenant=tenant)
            spec = known.plan.steps[place.step].spec
            if spec.wait is not None:
                finish = StepEnd(place, "succeeded", "ok")
            else:
                what = "nobody decided" if spec.approval is not None else "the event did not come"
                finish = StepEnd(place, "timed_out", "failed", reason=f"{what} in time")
            await self._finish(connection, run, [finish], moved)

    async def hear(self, endings: Sequence[ExecutionEnd]) -> None:
        """Executions that ended without their runs having heard of it."""
        async with self._turn() as (connection, moved):
            await advance(connection, self._plans, endings, moved)

    async def _hold(self, connection: Connection, run_id: UUID, *, tenant: int) -> tuple[Run, CachedPlan]:
        run = await runs.lock_run(connection, tenant=tenant, run_id=run_id)
        if run is None:
            raise await no_steps(connection, self._plans, run_id, tenant=tenant)
        known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
        assert known is not None, "a run points to its version"
        return run, known

    async def _finish(self, connection: Connection, run: Run, ended: Sequence[StepEnd], moved: Advanced) -> None:
        turn = await RunAdvance.load(connection, self._plans, [run])
        await turn.finish(ended)
        await advance(connection, self._plans, await turn.close(moved), moved)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[tuple[Connection, Advanced]]:
        """A transaction that may end runs; what waited for those goes on after it, as with any execution."""
        moved = Advanced()
        async with self._database.transaction() as connection:
            yield connection, moved
            if moved.settled.executions:
                await needs.release_after(connection, execution_ids=moved.settled.executions)
                await outbox.tell_settled(connection, execution_ids=sorted(moved.settled.executions))
            if moved.settled.freed:
                await results.notify_freed(connection, limit_ids=sorted(moved.settled.freed))
        if moved.settled.executions and self._announcer is not None:
            self._announcer.announce("finished", moved.settled.executions)
        if moved.settled.chained:
            with contextlib.suppress(*AWAY, *CONFLICTS):  # the sweep comes back to it
                async with self._database.transaction() as connection:
                    await overlaps.release_blocked(connection, job_ids=sorted(moved.settled.chained))

    async def of_execution(self, execution_id: UUID, *, tenant: int) -> UUID | None:
        """The run that an execution is, or is a step of."""
        async with self._database.connection() as connection:
            return await runs.run_of_execution(connection, tenant=tenant, execution_id=execution_id)

    async def spec_of(self, run: wire.Run, *, tenant: int) -> wire.WorkflowVersion | None:
        """What the run's version of its workflow says."""
        async with self._database.connection() as connection:
            known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
        if known is None:
            return None
        order = [known.plan.steps[number].name for number in known.plan.order]
        return wire.WorkflowVersion(version=known.version, spec=known.plan.spec, order=order)

    # Looking -----------------------------------------------------------------------------------------

    async def get(self, run_id: UUID, *, tenant: int, items: bool = False) -> wire.Run:
        async with self._database.connection() as connection:
            row = await self._found(connection, run_id, tenant=tenant)
            if isinstance(row, wire.Run):
                return row
            known = await self._plans.get(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            assert known is not None, "a run points to its version"
            steps = await run_steps.steps_of_run(connection, run_id=run_id, items=items)
        run = _as_run(row, [_as_step(known, s) for s in steps])
        return run_timelines.placed(run, known, now=steps[0]["now"])

    async def glance(self, run_id: UUID, *, tenant: int, step: str = "") -> Glance:
        """A run and the states of its steps, or of one of them and its items: quickly, however many there are."""
        async with self._database.connection() as connection:
            row = await self._found(connection, run_id, tenant=tenant)
            if isinstance(row, wire.Run):
                return Glance(row)
            known = await self._plans.get(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            assert known is not None, "a run points to its version"
            number = known.plan.by_name.get(step, -1) if step else None
            found = await run_steps.step_states(connection, run_id=run_id, step=number)
        plan = known.plan.steps
        return Glance(_as_run(row), [(p, plan[p[0]].name, _shown(plan[p[0]], state)) for p, state in found])

    async def steps_at(self, run: wire.Run, places: Sequence[tuple[int, int]], *, tenant: int) -> list[wire.RunStep]:
        """All there is to tell of some steps; what `glance` found says which."""
        async with self._database.connection() as connection:
            known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            assert known is not None, "a run points to its version"
            rows = await run_steps.steps_by_ref(connection, run_id=run.run_id, refs=places)
        return [_as_step(known, r) for r in rows]

    async def steps_to_draw(self, run: wire.Run, *, tenant: int) -> list[wire.RunStep]:
        """What a picture needs of every step."""
        async with self._database.connection() as connection:
            known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            assert known is not None, "a run points to its version"
            rows = await run_steps.steps_for_graph(connection, run_id=run.run_id)
        return [_as_drawn(known.plan.steps[r["step"]], r) for r in rows]

    async def timeline(self, run_id: UUID, name: str, *, tenant: int, item: int | None = None) -> wire.StepTimeline:
        """What happened to one step, in order."""
        run = await self.get(run_id, tenant=tenant)
        if not run.steps:
            raise Conflict("the run has not begun, so nothing has happened to its steps", code="not_begun")
        async with self._database.connection() as connection:
            known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            assert known is not None, "a run points to its version"
            number = _step(known, name).number
            rows = await run_steps.steps_of_run(connection, run_id=run_id, items=True, step=number)
        whole = next(step for step in run.steps if step.name == name)
        items = [_as_step(known, r) for r in rows if r["item"] != WHOLE]
        return await run_timelines.of_step(self._database, [whole, *items], tenant=tenant, item=item)

    async def grid(self, ref: str, *, tenant: int, count: int = 25) -> wire.Grid:
        """The last runs of a workflow, with the state of each step."""
        return await run_timelines.grid(self._database, self._plans, ref, tenant=tenant, count=count)

    async def _found(self, connection: Connection, run_id: UUID, *, tenant: int) -> Any:
        """The row of a run, or the run itself if it has not begun; it may begin between two looks."""
        row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None and (row := await unbegun(connection, self._plans, run_id, tenant=tenant)) is None:
            row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None:
            raise NotFound(f"there is no run {run_id}")
        return row

    async def list(
        self,
        *,
        tenant: int,
        cursor: str | None = None,
        limit: int = 50,
        workflow: str | None = None,
        states: Sequence[str] = (),
    ) -> wire.Page[wire.Run]:
        check_limit(limit)
        for state in states:
            if state not in LISTED:
                raise invalid("/state", f"{state!r} is not a state of a run", hint=f"one of {', '.join(LISTED)}")
        before = parse_cursor(cursor)
        job_id = None if workflow is None else (await row_of(self._database, workflow, tenant=tenant)).job_id
        found: list[wire.Run] = []
        async with self._database.connection() as connection:
            if not states or "queued" in states:
                found += await listed(connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id)
            if not states or states != ["queued"]:
                rows = await runs.list_runs(
                    connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id, states=states
                )
                found += [_as_run(r) for r in rows]
        found.sort(key=lambda run: run.run_id, reverse=True)
        page = found[:limit]
        return wire.Page(items=page, next_cursor=str(page[-1].run_id) if len(found) > limit else None)

    async def starts(self, steps: Sequence[wire.RunStep], *, tenant: int, since: datetime) -> dict[UUID, datetime]:
        """When the executions of these steps started; the run began at `since`."""
        execution_ids = [step.execution_id for step in steps if step.execution_id is not None]
        async with self._database.connection() as connection:
            return await charts.started_executions(connection, tenant=tenant, execution_ids=execution_ids, since=since)

    async def cells(
        self, found: Sequence[wire.Run], names: Sequence[str], *, tenant: int
    ) -> dict[tuple[UUID, str], charts.StepCell]:
        """How steps of these names went in these runs, each by the version of the workflow that it was of."""
        wanted: dict[tuple[UUID, int], str] = {}
        async with self._database.connection() as connection:
            for run in found:
                known = await self._plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
                by_name = {} if known is None else known.plan.by_name
                wanted.update(((run.run_id, by_name[name]), name) for name in names if name in by_name)
            cells = await charts.steps_of_runs(connection, tenant=tenant, wanted=list(wanted))
        return {(cell.run_id, wanted[cell.run_id, cell.step]): cell for cell in cells}


def run_id_of(text: str) -> UUID:
    if not is_id(text):
        raise NotFound(f"there is no run {text!r}")
    return UUID(text)


async def find_run(database: Database, ref: str, *, tenant: int) -> UUID:
    """A run's id by itself, or by a unique beginning of it: it is an execution's too."""
    try:
        return await execution_id(database, ref, tenant=tenant)
    except NotFound:
        raise NotFound(f"there is no run {ref!r}") from None


def _step(known: CachedPlan, name: str) -> PlanStep:
    number = known.plan.by_name.get(name)
    if number is None:
        raise NotFound(f"the run has no step {name!r}")
    return known.plan.steps[number]


def _refuse_others(step: PlanStep, scopes: Sequence[str]) -> None:
    approval = step.spec.approval
    if approval is not None and approval.scope == "admin" and "admin" not in scopes:
        raise Forbidden(f"the step {step.name!r} needs the approval of an admin")


def _stops(known: CachedPlan, place: StepRef, state: str) -> bool:
    """Whether a cancelled run ends this step at once: it waits, or has not begun and does not always run."""
    return state == "waiting" or (state == "blocked" and known.plan.steps[place.step].spec.rule != "always")


def _done_again(known: CachedPlan, states: dict[int, str], from_step: str | None) -> set[int]:
    """The steps a rerun executes: those that failed, one that is named, and all behind them."""
    ahead = [number for number, state in states.items() if state not in KEPT]
    if from_step is not None:
        ahead.append(_step(known, from_step).number)
    if not ahead:
        raise Conflict("no step has failed: name the one to start from (--from STEP)", code="nothing_to_rerun")
    found: set[int] = set()
    while ahead:
        number = ahead.pop()
        if number not in found:
            found.add(number)
            ahead.extend(known.plan.children[number])
    return found


def _kept(place: StepRef, outcome: tuple[str, Any, str | None], by: str) -> StepEnd:
    """How a step of the run before counts in its rerun: a branch not taken stays so, a person's skip stays one."""
    state, result, flag = outcome
    words = f"kept from run {place.run_id}"
    if state == "succeeded":
        return StepEnd(place, state, "ok", result, words, by, "kept")
    return StepEnd(place, state, "ok" if flag == "skipped" else "skipped", None, words, by, flag)


async def _refuse_full(connection: Connection, run_id: UUID, *, tenant: int) -> None:
    """A rerun begins at once, so there must be a place for it; the key is held until it has begun."""
    found = await lines.limit_of_execution(connection, tenant=tenant, execution_id=run_id)
    if found is None:
        return
    limit_id, key = found
    (limit,) = await lines.lock_limits(connection, limit_ids=[limit_id])
    if (await lines.count_holders(connection, limit_ids=[limit_id]))[limit_id] >= limit.most:
        words = f"as many runs as may be at once are running ({limit.most}, by the key {key!r})"
        raise Conflict(f"{words}: rerun it when one has ended", code="limit_reached")


def _as_run(r: Any, steps: Sequence[wire.RunStep] = ()) -> wire.Run:
    return wire.Run(
        run_id=r["run_id"],
        job_id=r["job_id"],
        workflow=r["name"],
        version=r["version"],
        state=r["state"],
        open_steps=r["open_steps"],
        params=r["params"],
        fire_at=r["fire_at"],
        started_at=r["started_at"],
        finished_at=r["finished_at"],
        timeout_at=r["timeout_at"],
        sla_at=r["sla_at"],
        reason=r["reason"],
        created_by=r["created_by"],
        rerun_of=r["rerun_of"],
        steps=list(steps),
    )


def _as_step(known: CachedPlan, r: Any) -> wire.RunStep:
    step = known.plan.steps[r["step"]]
    return wire.RunStep(
        name=step.name,
        kind=step.spec.kind,
        item=None if r["item"] == WHOLE else r["item"],
        state=r["state"],
        needs=list(step.spec.needs),
        execution_id=r["execution_id"] if r["released_at"] is not None else None,
        released_at=r["released_at"],
        queued_at=r["queued_at"],
        started_at=r["started_at"],
        finished_at=r["finished_at"],
        attempt=r["attempt"],
        worker=r["worker_name"],
        wake_at=r["wake_at"],
        items=r["items"],
        open_items=r["open_items"] if r["items"] is not None else None,
        result=r["result"],
        reason=r["reason"],
        decided_by=r["decided_by"],
        flag=r["flag"],
        message=None if step.spec.approval is None else step.spec.approval.message or None,
        scope=None if step.spec.approval is None else step.spec.approval.scope,
    )


def _shown(step: PlanStep, state: str) -> str:
    """Only a task is queued for a worker; whatever else has not begun is on its way all the same."""
    return "running" if state == "queued" and step.spec.kind != "task" else state


def _as_drawn(step: PlanStep, r: Any) -> wire.RunStep:
    return wire.RunStep(
        name=step.name,
        kind=step.spec.kind,
        state=r["state"],
        needs=list(step.spec.needs),
        execution_id=r["execution_id"],
        released_at=r["released_at"],
        started_at=r["started_at"],
        finished_at=r["finished_at"],
        items=r["items"],
        open_items=r["open_items"] if r["items"] is not None else None,
        reason=r["reason"],
        flag=r["flag"],
    )
