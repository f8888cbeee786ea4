"""Runs of workflows and their steps. Whoever moves a run on holds its row; every statement checks what it assumes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.domain.workflow.readiness import Weight
from mainspring.store.db import Connection, json_array
from mainspring.store.queries import q

ENGINE = UUID(int=1)
"""Stands where other running executions have a session: a run is executed by no worker."""
SLA_SAMPLE = 10_000
WHOLE = -1
"""The item of a step itself; those of a mapped or repeated step count from 0."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose row is held."""

    run_id: UUID
    tenant: int
    job_id: UUID
    version: int
    state: str
    params: Any
    fire_at: datetime
    started_at: datetime
    depth: int
    ends_as: str | None

    @property
    def cancelling(self) -> bool:
        return self.state == "cancelling"


@dataclass(frozen=True, slots=True)
class Place:
    """A step in a run, or an item of it."""

    run_id: UUID
    step: int
    item: int = WHOLE


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a step or an item."""

    place: Place
    state: str
    weight: Weight
    result: Any = None
    reason: str | None = None
    by: str | None = None
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A mapped or repeated step: how many items, how many of them have not ended, and which is next."""

    place: Place
    items: int
    open: int
    failed: int
    next: int


@dataclass(frozen=True, slots=True)
class Release:
    place: Place
    params: Any = None
    workflow: str | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """An execution of a workflow that is about to be a run."""

    run_id: UUID
    job_id: UUID
    tenant: int
    version: int
    attempt: int
    fire_at: datetime
    params: Any
    created_by: str | None
    started_at: datetime
    depth: int


@dataclass(frozen=True, slots=True)
class NewRun:
    claimed: Claimed
    version: int
    open_steps: int
    timeout_s: float | None
    sla_s: float | None
    rerun_of: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewStep:
    place: Place
    execution_id: UUID | None
    unmet: int
    keeps: bool  # its result is read by somebody
    value: Any = None


@dataclass(frozen=True, slots=True)
class Closed:
    run_id: UUID
    state: str
    attempt: int
    reason: str | None
    lasted_s: float
    in_time: bool | None


@dataclass(slots=True)
class Tally:
    """Ends of steps, by how they count."""

    ok: int = 0
    failed: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Met:
    """What the end of steps has led to: steps with nothing open before them, and runs with no open step."""

    ready: list[tuple[Place, int, int, int]] = field(default_factory=list)
    done: list[tuple[UUID, int, int]] = field(default_factory=list)


async def startable_runs(connection: Connection, *, limit: int) -> list[tuple[UUID, int | None]]:
    """Over all tenants: starting what is due is a duty of the system."""
    return [(r["execution_id"], r["limit_id"]) for r in await connection.fetch(q("startable_runs"), limit)]


async def workflow_lines(connection: Connection) -> tuple[set[int], int]:
    """Where runs wait, and the newest line of all. Over all tenants, as the notices that name them."""
    rows = await connection.fetch(q("workflow_lines"))
    newest = max((r["line_id"] or 0 for r in rows if r["newest"]), default=0)
    return {r["line_id"] for r in rows if not r["newest"]}, newest


async def claim_runs(connection: Connection, *, execution_ids: Sequence[UUID]) -> list[Claimed]:
    """Over all tenants: each row says whose it is."""
    return [
        Claimed(
            r["execution_id"],
            r["job_id"],
            r["tenant_id"],
            r["version"],
            r["attempt"],
            r["fire_at"],
            r["params"],
            r["created_by"],
            r["started_at"],
            r["depth"] or 0,
        )
        for r in await connection.fetch(q("claim_runs"), list(execution_ids), ENGINE)
    ]


async def insert_runs(connection: Connection, *, new: Sequence[NewRun]) -> None:
    """Each says whose it is, as its execution did."""
    of = [n.claimed for n in new]
    await connection.execute(
        q("insert_runs"),
        [c.run_id for c in of],
        [c.tenant for c in of],
        [c.job_id for c in of],
        [n.version for n in new],
        [c.attempt for c in of],
        [c.depth for c in of],
        [n.open_steps for n in new],
        [c.params for c in of],
        [c.fire_at for c in of],
        [c.started_at for c in of],
        [n.timeout_s for n in new],
        [n.sla_s for n in new],
        [c.created_by for c in of],
        [n.rerun_of for n in new],
    )


async def insert_run_steps(connection: Connection, *, steps: Sequence[NewStep]) -> None:
    """Of runs the caller has just made, or holds."""
    await connection.execute(
        q("insert_run_steps"),
        *_places(s.place for s in steps),
        [s.execution_id for s in steps],
        [s.unmet for s in steps],
        json_array(s.value for s in steps),
        [s.keeps for s in steps],
    )


Holding = tuple[dict[UUID, Run], dict[UUID, Place]]
"""Runs that are held, and which step of theirs each execution is."""


async def hold_runs(connection: Connection, *, execution_ids: Sequence[UUID]) -> Holding:
    """The runs that wait for executions the caller has just ended, held; and which of their steps each is."""
    return held_by(await connection.fetch(q("hold_runs"), list(execution_ids)))


def held_by(rows: Iterable[Any]) -> Holding:
    """What rows of held runs say, each with the execution and the step it is; those without a run are left out."""
    found = [r for r in rows if r["run_id"] is not None]
    held = {r["run_id"]: _run(r) for r in found}
    return held, {r["execution_id"]: Place(r["run_id"], r["step"], r["item"]) for r in found}


async def finish_executions(
    connection: Connection, *, ended: dict[UUID, Finish], needed_by: Sequence[Sequence[int]]
) -> tuple[list[Finish], Met]:
    """Those that had not ended before, and what that has led to. `needed_by`: of each, the steps that need it. The
    caller holds the runs."""
    of = list(ended.values())
    rows = await connection.fetch(
        q("finish_executions"),
        list(ended),
        [f.state for f in of],
        json_array(f.result for f in of),
        [f.reason for f in of],
        [f.weight for f in of],
        [f"{{{','.join(map(str, steps))}}}" for steps in needed_by],
    )
    done, met = set(), Met()
    for kind, run_id, step, item, ok, failed, skipped in rows:
        if kind == 0:
            done.add(Place(run_id, step, item))
        elif kind == 1:
            met.ready.append((Place(run_id, step), ok, failed, skipped))
        else:
            met.done.append((run_id, failed, skipped))
    return [f for f in of if f.place in done], met


async def hold_run(connection: Connection, *, tenant: int, run_id: UUID) -> Run | None:
    row = await connection.fetchrow(q("hold_run"), run_id, tenant)
    return None if row is None else _run(row)


async def finish_steps(connection: Connection, *, ended: Sequence[Finish]) -> set[Place]:
    """Those that had not ended before. The caller holds the runs."""
    rows = await connection.fetch(
        q("finish_steps"),
        *_places(f.place for f in ended),
        [f.state for f in ended],
        json_array(f.result for f in ended),
        [f.reason for f in ended],
        [f.by for f in ended],
        [f.flag for f in ended],
    )
    return {Place(r["run_id"], r["step"], r["item"]) for r in rows}


async def count_steps(
    connection: Connection, *, needing: dict[Place, Tally], of_runs: dict[UUID, tuple[int, int, int]]
) -> Met:
    """Counts ends at the steps behind and at their runs: how many, failed, ends reached. The caller holds the runs."""
    tallies = list(needing.values())
    rows = await connection.fetch(
        q("count_steps"),
        [p.run_id for p in needing],
        [p.step for p in needing],
        [t.ok + t.failed + t.skipped for t in tallies],
        [t.ok for t in tallies],
        [t.failed for t in tallies],
        [t.skipped for t in tallies],
        list(of_runs),
        *([n[i] for n in of_runs.values()] for i in range(3)),
    )
    met = Met()
    for run_id, step, a, b, c in rows:
        if step == -1:
            met.done.append((run_id, b, c))
        else:
            met.ready.append((Place(run_id, step), a, b, c))
    return met


async def count_items(connection: Connection, *, ended: dict[Place, tuple[int, int]]) -> list[Group]:
    """How many items of each step have ended, and how many of them failed. The caller holds the runs."""
    rows = await connection.fetch(
        q("count_items"),
        [p.run_id for p in ended],
        [p.step for p in ended],
        [n for n, _ in ended.values()],
        [failed for _, failed in ended.values()],
    )
    return [_group(r) for r in rows]


async def open_groups(connection: Connection, *, groups: Sequence[Group]) -> None:
    """The caller holds the runs."""
    await connection.execute(
        q("open_groups"),
        [g.place.run_id for g in groups],
        [g.place.step for g in groups],
        [g.items for g in groups],
        [g.open for g in groups],
        [g.next for g in groups],
    )


async def drop_items(connection: Connection, *, places: Sequence[Place], reason: str) -> list[Group]:
    """The steps they belong to, as they are now. The caller holds the runs."""
    rows = await connection.fetch(q("drop_items"), [p.run_id for p in places], [p.step for p in places], reason)
    return [_group(r) for r in rows]


async def wait_steps(connection: Connection, *, waits: Sequence[tuple[Place, float | None, datetime | None]]) -> None:
    """Each with how long or until when; neither: until somebody comes. The caller holds the runs."""
    await connection.execute(
        q("wait_steps"),
        [p.run_id for p, _, _ in waits],
        [p.step for p, _, _ in waits],
        [wait_s for _, wait_s, _ in waits],
        [until for _, _, until in waits],
    )


async def release_steps(
    connection: Connection, *, go: Sequence[Release], session_id: UUID | None = None, line_id: int | None = None
) -> Any:
    """One of the executions they are now, as it is claimed. If a session waits for work of a line, a step of that line
    begins there. The caller holds the runs."""
    return await connection.fetchrow(
        q("release_steps"),
        *_places(r.place for r in go),
        [r.params for r in go],
        [r.delay_s for r in go],
        session_id,
        line_id,
    )


async def release_workflows(connection: Connection, *, go: Sequence[Release]) -> list[Place]:
    """The steps whose workflow is not there. The caller holds the runs."""
    rows = await connection.fetch(
        q("release_workflows"),
        *_places(r.place for r in go),
        [r.params for r in go],
        [r.delay_s for r in go],
        [r.workflow for r in go],
    )
    return [Place(r["run_id"], r["step"], r["item"]) for r in rows if r["run_id"] is not None]


async def step_outcomes(connection: Connection, *, places: Sequence[Place]) -> dict[Place, tuple[str, Any, str | None]]:
    """State, result and flag. The caller holds the runs, or reads one of its tenant's."""
    rows = await connection.fetch(q("step_outcomes"), [p.run_id for p in places], [p.step for p in places])
    return {Place(r["run_id"], r["step"]): (r["state"], r["result"], r["flag"]) for r in rows}


async def item_outcomes(
    connection: Connection, *, places: Sequence[Place]
) -> dict[Place, list[tuple[str, Any, str | None]]]:
    """State, result and reason of each item, in order. The caller holds the runs."""
    found: dict[Place, list[tuple[str, Any, str | None]]] = {}
    for r in await connection.fetch(q("item_outcomes"), [p.run_id for p in places], [p.step for p in places]):
        found.setdefault(Place(r["run_id"], r["step"]), []).append((r["state"], r["result"], r["reason"]))
    return found


async def items_to_release(
    connection: Connection, *, wanted: Sequence[tuple[Place, int, int]]
) -> list[tuple[Place, Any]]:
    """`wanted`: a step, its first item and how many. The caller holds the runs."""
    rows = await connection.fetch(
        q("items_to_release"),
        [p.run_id for p, _, _ in wanted],
        [p.step for p, _, _ in wanted],
        [first for _, first, _ in wanted],
        [n for _, _, n in wanted],
    )
    return [(Place(r["run_id"], r["step"], r["item"]), r["value"]) for r in rows]


async def close_runs(connection: Connection, *, closing: Sequence[tuple[UUID, str, str | None]]) -> list[Closed]:
    """Run, state and reason of each. The caller holds the runs."""
    rows = await connection.fetch(
        q("close_runs"),
        [run_id for run_id, _, _ in closing],
        [state for _, state, _ in closing],
        [reason for _, _, reason in closing],
    )
    return [Closed(r["run_id"], r["state"], r["attempt"], r["reason"], r["lasted_s"], r["in_time"]) for r in rows]


async def cancel_run(connection: Connection, *, tenant: int, run_id: UUID, ends_as: str, reason: str) -> bool:
    return await connection.fetchval(q("cancel_run"), run_id, tenant, ends_as, reason) is not None


async def stoppable_steps(connection: Connection, *, run_id: UUID) -> list[tuple[Place, str, UUID | None]]:
    """What of a run has not ended: where, its state and its execution. The caller knows the run is its tenant's."""
    return [
        (Place(run_id, r["step"], r["item"]), r["state"], r["execution_id"])
        for r in await connection.fetch(q("stoppable_steps"), run_id)
    ]


async def lock_executions(connection: Connection, *, execution_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The state of each that lives. The caller knows that they are its tenant's."""
    rows = await connection.fetch(q("lock_executions"), list(execution_ids))
    return {r["execution_id"]: r["state"] for r in rows}


async def step_of_run(connection: Connection, *, place: Place) -> tuple[str, UUID | None] | None:
    """State and execution. The caller holds the run."""
    r = await connection.fetchrow(q("step_of_run"), place.run_id, place.step, place.item)
    return None if r is None else (r["state"], r["execution_id"])


async def insert_event(connection: Connection, *, tenant: int, run_id: UUID, name: str, payload: Any, by: str) -> bool:
    """Whether it is the first of that name. The caller holds the run, or the execution that will be it."""
    return await connection.fetchval(q("insert_event"), run_id, tenant, name, payload, by) is not None


async def event_of_run(connection: Connection, *, run_id: UUID, name: str) -> tuple[Any, datetime, str] | None:
    """Payload, when and from whom. The caller holds the run."""
    r = await connection.fetchrow(q("event_of_run"), run_id, name)
    return None if r is None else (r["payload"], r["received_at"], r["received_by"])


async def due_steps(connection: Connection, *, limit: int) -> list[tuple[Place, int]]:
    """Over all tenants: whose each is comes with it."""
    rows = await connection.fetch(q("due_steps"), limit)
    return [(Place(r["run_id"], r["step"]), r["tenant_id"]) for r in rows]


async def due_runs(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Over all tenants: whose each is comes with it."""
    return [(r["run_id"], r["tenant_id"]) for r in await connection.fetch(q("due_runs"), limit)]


async def next_wake_s(connection: Connection) -> float | None:
    """Over all tenants: a duty of the system."""
    found = await connection.fetchval(q("next_wake"))
    return None if found is None else float(found)


async def asked_to_end(connection: Connection, *, limit: int) -> list[tuple[UUID, int, str]]:
    """Over all tenants: run, whose it is, and why."""
    rows = await connection.fetch(q("asked_to_end"), ENGINE, limit)
    return [(r["execution_id"], r["tenant_id"], r["cancel_reason"] or "cancelled") for r in rows]


async def stray_steps(connection: Connection, *, limit: int) -> list[tuple[UUID, str, Any, str | None]]:
    """Over all tenants: the sweep is a duty of the system."""
    rows = await connection.fetch(q("stray_steps"), limit)
    return [(r["execution_id"], r["state"], r["result"], r["reason"]) for r in rows]


async def half_cancelled(connection: Connection, *, limit: int) -> list[tuple[UUID, int]]:
    """Over all tenants: the sweep is a duty of the system."""
    return [(r["run_id"], r["tenant_id"]) for r in await connection.fetch(q("half_cancelled"), limit)]


async def sla_ratios(connection: Connection, *, tenant: int) -> dict[str, float]:
    """By workflow: of the runs that should have succeeded by now, in the last day, those that did."""
    return {r["name"]: r["ratio"] for r in await connection.fetch(q("sla_ratios"), tenant, SLA_SAMPLE)}


async def forget_runs(connection: Connection, *, after_s: float, limit: int) -> int:
    """Over all tenants: upkeep is a duty of the system."""
    return len(await connection.fetch(q("forget_runs"), after_s, limit))


async def run_by_id(connection: Connection, *, tenant: int, run_id: UUID) -> Any | None:
    return await connection.fetchrow(q("run_by_id"), run_id, tenant)


async def run_of(connection: Connection, *, tenant: int, execution_id: UUID) -> UUID | None:
    """The run that an execution is, or is a step of."""
    found: UUID | None = await connection.fetchval(q("run_of"), execution_id, tenant)
    return found


async def list_runs(
    connection: Connection,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_id: UUID | None = None,
    states: Sequence[str] | None = None,
) -> list[Any]:
    return await connection.fetch(q("list_runs"), tenant, before, limit, job_id, states or None)


async def failed_steps(connection: Connection, *, run_id: UUID, limit: int) -> list[tuple[int, str, str | None]]:
    """Number, state and reason. The caller holds the run."""
    rows = await connection.fetch(q("failed_steps"), run_id, limit)
    return [(r["step"], r["state"], r["reason"]) for r in rows]


async def runs_ahead(
    connection: Connection, *, tenant: int, before: UUID, limit: int, job_id: UUID | None = None
) -> list[Any]:
    return await connection.fetch(q("runs_ahead"), tenant, before, limit, job_id)


async def steps_of_run(connection: Connection, *, run_id: UUID, items: bool, step: int | None = None) -> list[Any]:
    """All of them, or one. The caller has found the run to be its tenant's."""
    return await connection.fetch(q("steps_of_run"), run_id, items, step)


async def some_steps_of_run(connection: Connection, *, run_id: UUID, places: Sequence[tuple[int, int]]) -> list[Any]:
    """Those of these places: the number of a step, and of an item of it or WHOLE."""
    numbers, items = [step for step, _ in places], [item for _, item in places]
    return await connection.fetch(q("some_steps_of_run"), run_id, numbers, items)


async def states_of_steps(
    connection: Connection, *, run_id: UUID, step: int | None = None
) -> list[tuple[tuple[int, int], str]]:
    """Place and state of each step, or of one step and its items."""
    row = await connection.fetchrow(q("states_of_steps"), run_id, step)
    assert row is not None
    places = zip(row["steps"] or (), row["items"] or (), strict=True)
    return list(zip(places, row["states"] or (), strict=True))


async def steps_to_draw(connection: Connection, *, run_id: UUID) -> list[Any]:
    return await connection.fetch(q("steps_to_draw"), run_id)


async def grid_of_runs(connection: Connection, *, tenant: int, job_id: UUID, limit: int) -> list[Any]:
    return await connection.fetch(q("grid_of_runs"), job_id, tenant, limit)


def _run(r: Any) -> Run:
    return Run(
        r["run_id"],
        r["tenant_id"],
        r["job_id"],
        r["version"],
        r["state"],
        r["params"],
        r["fire_at"],
        r["started_at"],
        r["depth"],
        r["ends_as"],
    )


def _group(r: Any) -> Group:
    return Group(Place(r["run_id"], r["step"]), r["items"], r["open_items"], r["failed_items"], r["next_item"])


def _places(places: Iterable[Place]) -> tuple[list[UUID], list[int], list[int]]:
    known = list(places)
    return [p.run_id for p in known], [p.step for p in known], [p.item for p in known]
