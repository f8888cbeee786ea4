"""Runs of workflows, with their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound, invalid
from mainspring.domain.workflow.plan import PlanStep
from mainspring.domain.workflow.run import WHOLE
from mainspring.domain.workflow.spec import Approval, RunState
from mainspring.runs.plans import CachedPlan, PlanCache
from mainspring.store import charts, run_steps, runs, trigger_starts
from mainspring.store.db import Connection, Database
from mainspring.views import run_timelines
from mainspring.views.approval_messages import approval_messages
from mainspring.views.pending_runs import has_no_steps, list_pending, pending_run
from mainspring.views.refs import check_limit, is_id, parse_cursor
from mainspring.views.workflows import row_of

STATES: tuple[str, ...] = ("queued", *get_args(RunState))


@dataclass(frozen=True, slots=True)
class RunStepStates:
    """A run without its steps, and for each step: (number, item), name, displayed state."""

    run: wire.Run
    steps: Sequence[tuple[tuple[int, int], str, str]] = ()


class RunViews:
    """Reads runs; keeps the plans of workflow versions in memory."""

    def __init__(self, database: Database, *, plans: PlanCache | None = None) -> None:
        self._database = database
        self.plans = plans or PlanCache()

    def of(self, database: Database) -> RunViews:
        """Return the same reads on another view of the database."""
        return RunViews(database, plans=self.plans)

    async def get(self, run_id: UUID, *, tenant: int, items: bool = False) -> wire.Run:
        """One run with its steps, and with the items of mapped and repeated steps on request."""
        async with self._database.connection() as connection:
            row = await self._found(connection, run_id, tenant=tenant)
            if isinstance(row, wire.Run):
                return row
            known = await self.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            steps = await run_steps.steps_of_run(connection, run_id=run_id, items=items)
            messages = await approval_messages(connection, known, row, {s["step"] for s in steps})
            start = await _started_by(connection, row, tenant=tenant)
        run = _as_run(row, [_as_step(known, s, messages) for s in steps], start)
        return run_timelines.with_critical_path(run, known, now=steps[0]["now"])

    async def list_runs(
        self,
        *,
        tenant: int,
        cursor: str | None = None,
        limit: int = 50,
        workflow: str | None = None,
        states: Sequence[str] = (),
    ) -> wire.Page[wire.Run]:
        """Runs without their steps, newest first, including queued ones."""
        check_limit(limit)
        for state in states:
            if state not in STATES:
                raise invalid("/state", f"{state!r} is not a state of a run", hint=f"one of {', '.join(STATES)}")
        before = parse_cursor(cursor)
        job_id = None if workflow is None else (await row_of(self._database, workflow, tenant=tenant)).job_id
        found: list[wire.Run] = []
        async with self._database.connection() as connection:
            if not states or "queued" in states:
                found += await list_pending(connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id)
            if not states or states != ["queued"]:
                rows = await runs.list_runs(
                    connection, tenant=tenant, before=before, limit=limit + 1, job_id=job_id, states=states
                )
                found += [_as_run(r) for r in rows]
        found.sort(key=lambda run: run.run_id, reverse=True)
        page = found[:limit]
        return wire.Page(items=page, next_cursor=str(page[-1].run_id) if len(found) > limit else None)

    async def is_pending(self, run_id: UUID, *, tenant: int) -> bool:
        """Whether a run has not started."""
        async with self._database.connection() as connection:
            found = await self._found(connection, run_id, tenant=tenant)
        return isinstance(found, wire.Run) and found.state == "queued"

    async def run_of_execution(self, execution_id: UUID, *, tenant: int) -> UUID | None:
        """The run that an execution is, or is a step of."""
        async with self._database.connection() as connection:
            return await runs.run_of_execution(connection, tenant=tenant, execution_id=execution_id)

    async def definition(self, run: wire.Run, *, tenant: int) -> wire.WorkflowVersion | None:
        """The version of its workflow that a run executes."""
        async with self._database.connection() as connection:
            known = await self.plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
        if known is None:
            return None
        order = [known.plan.steps[number].name for number in known.plan.order]
        return wire.WorkflowVersion(version=known.version, spec=known.plan.spec, order=order)

    # Parts of a run, for pages that show many steps ----------------------------------------------------

    async def step_states(self, run_id: UUID, *, tenant: int, step: str = "") -> RunStepStates:
        """A run and the states of its steps, or of one step and its items. Cheap for any number of steps."""
        async with self._database.connection() as connection:
            row = await self._found(connection, run_id, tenant=tenant)
            if isinstance(row, wire.Run):
                return RunStepStates(row)
            known = await self.plan_of(connection, tenant=tenant, job_id=row["job_id"], version=row["version"])
            number = known.plan.by_name.get(step, -1) if step else None
            found = await run_steps.step_states(connection, run_id=run_id, step=number)
            run = _as_run(row, (), await _started_by(connection, row, tenant=tenant))
        plan = known.plan.steps
        return RunStepStates(
            run, [(ref, plan[ref[0]].name, _displayed_state(plan[ref[0]], state)) for ref, state in found]
        )

    async def steps_by_ref(self, run: wire.Run, refs: Sequence[tuple[int, int]], *, tenant: int) -> list[wire.RunStep]:
        """Some steps of a run, by the (number, item) that `step_states` returned."""
        async with self._database.connection() as connection:
            known = await self.plan_of(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            rows = await run_steps.steps_by_ref(connection, run_id=run.run_id, refs=refs)
            row = {"run_id": run.run_id, "params": run.params, "fire_at": run.fire_at}
            messages = await approval_messages(connection, known, row, {r["step"] for r in rows})
        return [_as_step(known, r, messages) for r in rows]

    async def steps_for_graph(self, run: wire.Run, *, tenant: int) -> list[wire.RunStep]:
        """Every step of a run, with the fields that a graph shows."""
        async with self._database.connection() as connection:
            known = await self.plan_of(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            rows = await run_steps.steps_for_graph(connection, run_id=run.run_id)
        return [_as_graph_step(known.plan.steps[r["step"]], r) for r in rows]

    async def execution_times(
        self, steps: Sequence[wire.RunStep], *, tenant: int, since: datetime
    ) -> dict[UUID, charts.ExecutionTimes]:
        """Start and duration of the executions of these steps; the run started at `since`."""
        execution_ids = [step.execution_id for step in steps if step.execution_id is not None]
        async with self._database.connection() as connection:
            return await charts.execution_times(connection, tenant=tenant, execution_ids=execution_ids, since=since)

    async def step_cells(
        self, found: Sequence[wire.Run], names: Sequence[str], *, tenant: int
    ) -> dict[tuple[UUID, str], charts.StepCell]:
        """The steps of these names in each of these runs, by run and name. Runs may have different versions."""
        wanted: dict[tuple[UUID, int], str] = {}
        async with self._database.connection() as connection:
            for run in found:
                known = await self.plans.get(connection, tenant=tenant, job_id=run.job_id, version=run.version)
                by_name = {} if known is None else known.plan.by_name
                wanted.update(((run.run_id, by_name[name]), name) for name in names if name in by_name)
            cells = await charts.steps_of_runs(connection, tenant=tenant, wanted=list(wanted))
        return {(cell.run_id, wanted[cell.run_id, cell.step]): cell for cell in cells}

    async def step_timeline(
        self, run_id: UUID, name: str, *, tenant: int, item: int | None = None
    ) -> wire.StepTimeline:
        """The events of one step, in order."""
        run = await self.get(run_id, tenant=tenant)
        if not run.steps:
            raise Conflict("the run has not started, so its steps have no events", code="not_begun")
        async with self._database.connection() as connection:
            known = await self.plan_of(connection, tenant=tenant, job_id=run.job_id, version=run.version)
            number = step_named(known, name).number
            rows = await run_steps.steps_of_run(connection, run_id=run_id, items=True, step=number)
        whole = next(step for step in run.steps if step.name == name)
        items = [_as_step(known, r, {}) for r in rows if r["item"] != WHOLE]
        return await run_timelines.step_timeline(self._database, [whole, *items], tenant=tenant, item=item)

    async def grid(self, ref: str, *, tenant: int, count: int = 25) -> wire.Grid:
        """The last runs of a workflow, with the state of each step."""
        return await run_timelines.grid(self._database, self.plans, ref, tenant=tenant, count=count)

    # Shared with those who change runs -----------------------------------------------------------------

    async def plan_of(self, connection: Connection, *, tenant: int, job_id: UUID, version: int) -> CachedPlan:
        """The plan of a version that a run refers to."""
        known = await self.plans.get(connection, tenant=tenant, job_id=job_id, version=version)
        assert known is not None, "a run refers to an existing version"
        return known

    async def started_row(self, connection: Connection, run_id: UUID, *, tenant: int) -> Any:
        """The row of a run that has started."""
        row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None:
            raise await has_no_steps(connection, self.plans, run_id, tenant=tenant)
        return row

    async def _found(self, connection: Connection, run_id: UUID, *, tenant: int) -> Any:
        """The row of a run, or the run itself if it has not started. It may start between the two queries."""
        row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None and (row := await pending_run(connection, self.plans, run_id, tenant=tenant)) is None:
            row = await runs.run_by_id(connection, tenant=tenant, run_id=run_id)
        if row is None:
            raise NotFound(f"there is no run {run_id}")
        return row


def parse_run_id(text: str) -> UUID:
    if not is_id(text):
        raise NotFound(f"there is no run {text!r}")
    return UUID(text)


def step_named(known: CachedPlan, name: str) -> PlanStep:
    number = known.plan.by_name.get(name)
    if number is None:
        raise NotFound(f"the run has no step {name!r}")
    return known.plan.steps[number]


async def _started_by(connection: Connection, r: Any, *, tenant: int) -> wire.StartedBy | None:
    """The trigger that started a run."""
    found = await trigger_starts.starts_of(connection, tenant=tenant, created_by={r["run_id"]: r["created_by"]})
    return found.get(r["run_id"])


def _elapsed_ms(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else max(0, round((end - start).total_seconds() * 1000))


def _has_execution(r: Any) -> bool:
    """Whether the duration of a step is that of its execution: not of an approval, a wait, or a step with items."""
    return r["execution_id"] is not None and r["items"] is None


def _as_run(r: Any, steps: Sequence[wire.RunStep] = (), started_by: wire.StartedBy | None = None) -> wire.Run:
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
        duration_ms=_elapsed_ms(r["started_at"], r["finished_at"]),
        timeout_at=r["timeout_at"],
        sla_at=r["sla_at"],
        reason=r["reason"],
        created_by=r["created_by"],
        started_by=started_by,
        rerun_of=r["rerun_of"],
        steps=list(steps),
    )


def _as_step(known: CachedPlan, r: Any, messages: Mapping[int, str]) -> wire.RunStep:
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
        duration_ms=r["duration_ms"] if _has_execution(r) else _elapsed_ms(r["released_at"], r["finished_at"]),
        attempt=r["attempt"],
        worker=r["worker_name"],
        wake_at=r["wake_at"],
        items=r["items"],
        open_items=r["open_items"] if r["items"] is not None else None,
        result=r["result"],
        reason=r["reason"],
        decided_by=r["decided_by"],
        flag=r["flag"],
        message=messages.get(step.number),
        scope=None if step.spec.approval is None else step.spec.approval.scope,
        self_approval=None if step.spec.approval is None else step.spec.approval.self_approval,
        approvers=_approvers(step.spec.approval),
        approvals_needed=None if step.spec.approval is None else step.spec.approval.count,
    )


def _approvers(approval: Approval | None) -> list[str] | None:
    return list(approval.deciders) or None if approval is not None else None


def _displayed_state(step: PlanStep, state: str) -> str:
    """Only tasks wait for a worker; a queued step of another kind is shown as running."""
    return "running" if state == "queued" and step.spec.kind != "task" else state


def _as_graph_step(step: PlanStep, r: Any) -> wire.RunStep:
    return wire.RunStep(
        name=step.name,
        kind=step.spec.kind,
        state=r["state"],
        needs=list(step.spec.needs),
        execution_id=r["execution_id"],
        released_at=r["released_at"],
        started_at=r["started_at"],
        finished_at=r["finished_at"],
        duration_ms=None if _has_execution(r) else _elapsed_ms(r["released_at"], r["finished_at"]),
        items=r["items"],
        open_items=r["open_items"] if r["items"] is not None else None,
        reason=r["reason"],
        flag=r["flag"],
    )
