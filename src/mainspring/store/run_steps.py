"""Steps of workflow runs, and their executions. Callers that change steps have locked the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring import ports
from mainspring.domain.workflow.freeing import Freed, StepStatus
from mainspring.domain.workflow.readiness import Parents
from mainspring.domain.workflow.run import CountedEnds, EndCounts, ItemGroup, NewRunStep, StepEnd, StepRef, StepRelease
from mainspring.store.db import Connection, json_array
from mainspring.store.hints import hint, hint_placed
from mainspring.store.queries import q


async def insert_run_steps(connection: Connection, *, steps: Sequence[NewRunStep]) -> None:
    await connection.execute(
        q("insert_run_steps"),
        *_ref_arrays(s.ref for s in steps),
        [s.execution_id for s in steps],
        [s.unmet for s in steps],
        json_array(s.value for s in steps),
        [s.keeps for s in steps],
    )


async def finish_executions(
    connection: Connection, *, ended: dict[UUID, StepEnd], needed_by: Sequence[Sequence[int]]
) -> tuple[list[StepEnd], CountedEnds]:
    """End the steps of executions and count them at their children and runs; return those that had not ended before.

    `needed_by`: for each execution, the steps that need it.
    """
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
    done, counted = set(), CountedEnds()
    for kind, run_id, step, item, ok, failed, skipped in rows:
        if kind == 0:
            done.add(StepRef(run_id, step, item))
        elif kind == 1:
            counted.ready.append((StepRef(run_id, step), ok, failed, skipped))
        else:
            counted.done.append((run_id, failed, skipped))
    return [f for f in of if f.ref in done], counted


async def finish_steps(connection: Connection, *, ended: Sequence[StepEnd]) -> set[StepRef]:
    """End steps; return those that had not ended before."""
    rows = await connection.fetch(
        q("finish_steps"),
        *_ref_arrays(f.ref for f in ended),
        [f.state for f in ended],
        json_array(f.result for f in ended),
        [f.reason for f in ended],
        [f.by for f in ended],
        [f.flag for f in ended],
    )
    return {StepRef(r["run_id"], r["step"], r["item"]) for r in rows}


async def count_steps(
    connection: Connection, *, children: dict[StepRef, EndCounts], of_runs: dict[UUID, tuple[int, int, int]]
) -> CountedEnds:
    """Count ended steps at their children and at their runs (`of_runs`: ended, failed, successful end steps)."""
    counts = list(children.values())
    rows = await connection.fetch(
        q("count_steps"),
        [ref.run_id for ref in children],
        [ref.step for ref in children],
        [c.ok + c.failed + c.skipped for c in counts],
        [c.ok for c in counts],
        [c.failed for c in counts],
        [c.skipped for c in counts],
        list(of_runs),
        *([n[i] for n in of_runs.values()] for i in range(3)),
    )
    counted = CountedEnds()
    for run_id, step, a, b, c in rows:
        if step == -1:
            counted.done.append((run_id, b, c))
        else:
            counted.ready.append((StepRef(run_id, step), a, b, c))
    return counted


async def step_statuses(connection: Connection, *, run_id: UUID) -> dict[int, StepStatus]:
    """Return all steps of a run. The caller has locked the run."""
    return {
        r["step"]: StepStatus(r["state"], r["flag"], Parents(r["ok"], r["failed"], r["skipped"]))
        for r in await connection.fetch(q("step_statuses"), run_id)
    }


async def free_step(
    connection: Connection, *, end: StepEnd, was: str, freed: Freed
) -> list[tuple[StepRef, int, int, int]] | None:
    """Count a failed step as ok. Return the steps that this makes ready; None if it is not `was`, or the run not open.

    The caller has locked the run.
    """
    changes = freed.recounts
    rows = await connection.fetch(
        q("free_step"),
        end.ref.run_id,
        end.ref.step,
        was,
        end.state,
        end.result,
        end.reason,
        end.by,
        end.flag,
        list(changes),
        [c.opens for c in changes.values()],
        [c.unmet for c in changes.values()],
        [c.ok for c in changes.values()],
        [c.failed for c in changes.values()],
        [c.skipped for c in changes.values()],
        freed.opened,
        freed.ends_ok,
    )
    if not rows:
        return None
    return [(StepRef(end.ref.run_id, r["step"]), r["ok"], r["failed"], r["skipped"]) for r in rows if r["step"] >= 0]


async def count_items(connection: Connection, *, ended: dict[StepRef, tuple[int, int]]) -> list[ItemGroup]:
    """Count ended items at their steps, given as (ended, failed) by step."""
    rows = await connection.fetch(
        q("count_items"),
        [p.run_id for p in ended],
        [p.step for p in ended],
        [n for n, _ in ended.values()],
        [failed for _, failed in ended.values()],
    )
    return [_group(r) for r in rows]


async def update_item_groups(connection: Connection, *, groups: Sequence[ItemGroup]) -> None:
    """Write the item counts of mapped and repeated steps that start or proceed."""
    await connection.execute(
        q("update_item_groups"),
        [g.ref.run_id for g in groups],
        [g.ref.step for g in groups],
        [g.items for g in groups],
        [g.open for g in groups],
        [g.next for g in groups],
    )


async def cancel_items(connection: Connection, *, refs: Sequence[StepRef], reason: str) -> list[ItemGroup]:
    """Cancel items that have not started; return their steps."""
    rows = await connection.fetch(q("cancel_items"), [p.run_id for p in refs], [p.step for p in refs], reason)
    return [_group(r) for r in rows]


async def start_waits(
    connection: Connection, *, waits: Sequence[tuple[StepRef, float | None, datetime | None]]
) -> None:
    """Let steps wait for a duration or until an instant; with neither, until an approval or event."""
    rows = await connection.fetch(
        q("start_waits"),
        [p.run_id for p, _, _ in waits],
        [p.step for p, _, _ in waits],
        [wait_s for _, wait_s, _ in waits],
        [until for _, _, until in waits],
    )
    if any(row["wake_at"] is not None for row in rows):
        hint(connection, ports.RUNS, ports.WAKE)


async def release_steps(
    connection: Connection,
    *,
    releases: Sequence[StepRelease],
    session_id: UUID | None = None,
    line_id: int | None = None,
) -> Any:
    """Turn steps into executions; return the row of one of them, in the form of a claim.

    With `session_id`, a step of the line `line_id` starts on that session, if the session is alive.
    """
    rows = await connection.fetch(
        q("release_steps"),
        *_ref_arrays(r.ref for r in releases),
        [r.params for r in releases],
        [r.delay_s for r in releases],
        session_id,
        line_id,
    )
    hint_placed(connection, rows)
    return rows[0] if rows else None


async def release_workflows(connection: Connection, *, releases: Sequence[StepRelease]) -> list[StepRef]:
    """Turn steps into executions of other workflows; return the steps whose workflow does not exist."""
    rows = await connection.fetch(
        q("release_workflows"),
        *_ref_arrays(r.ref for r in releases),
        [r.params for r in releases],
        [r.delay_s for r in releases],
        [r.workflow for r in releases],
    )
    hint_placed(connection, rows)
    return [StepRef(r["run_id"], r["step"], r["item"]) for r in rows if r["run_id"] is not None]


async def step_outcomes(
    connection: Connection, *, refs: Sequence[StepRef]
) -> dict[StepRef, tuple[str, Any, str | None]]:
    """Return state, result and flag of steps. The caller has locked the runs, or checked their tenant."""
    rows = await connection.fetch(q("step_outcomes"), [p.run_id for p in refs], [p.step for p in refs])
    return {StepRef(r["run_id"], r["step"]): (r["state"], r["result"], r["flag"]) for r in rows}


async def step_deciders(connection: Connection, *, tenant: int, run_id: UUID) -> dict[int, str]:
    """Return who decided steps of a run, by number."""
    return {r["step"]: r["decided_by"] for r in await connection.fetch(q("step_deciders"), run_id, tenant)}


async def item_outcomes(
    connection: Connection, *, refs: Sequence[StepRef]
) -> dict[StepRef, list[tuple[str, Any, str | None]]]:
    """Return state, result and reason of each item, in order."""
    found: dict[StepRef, list[tuple[str, Any, str | None]]] = {}
    for r in await connection.fetch(q("item_outcomes"), [p.run_id for p in refs], [p.step for p in refs]):
        found.setdefault(StepRef(r["run_id"], r["step"]), []).append((r["state"], r["result"], r["reason"]))
    return found


async def items_to_release(
    connection: Connection, *, wanted: Sequence[tuple[StepRef, int, int]]
) -> list[tuple[StepRef, Any]]:
    """Return the values of items; `wanted`: a step, its first item and the number of items."""
    rows = await connection.fetch(
        q("items_to_release"),
        [p.run_id for p, _, _ in wanted],
        [p.step for p, _, _ in wanted],
        [first for _, first, _ in wanted],
        [n for _, _, n in wanted],
    )
    return [(StepRef(r["run_id"], r["step"], r["item"]), r["value"]) for r in rows]


async def failed_steps(connection: Connection, *, run_id: UUID, limit: int) -> list[tuple[int, str, str | None]]:
    """Return (number, state, reason) of the first unsuccessful steps."""
    rows = await connection.fetch(q("failed_steps"), run_id, limit)
    return [(r["step"], r["state"], r["reason"]) for r in rows]


async def open_steps(connection: Connection, *, run_id: UUID) -> list[tuple[StepRef, str, UUID | None]]:
    """Return the open steps of a run with state and execution. The caller has checked the run's tenant."""
    return [
        (StepRef(run_id, r["step"], r["item"]), r["state"], r["execution_id"])
        for r in await connection.fetch(q("open_steps"), run_id)
    ]


async def lock_executions(connection: Connection, *, execution_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Lock live executions and return their states. The caller has checked their tenant."""
    rows = await connection.fetch(q("lock_executions"), list(execution_ids))
    return {r["execution_id"]: r["state"] for r in rows}


async def step_state(connection: Connection, *, ref: StepRef) -> tuple[str, UUID | None] | None:
    """Return state and execution of a step. The caller has locked the run."""
    r = await connection.fetchrow(q("step_state"), ref.run_id, ref.step, ref.item)
    return None if r is None else (r["state"], r["execution_id"])


async def due_steps(connection: Connection, *, limit: int) -> list[tuple[StepRef, int]]:
    """Return (step, tenant) of steps of all tenants whose wait is over."""
    rows = await connection.fetch(q("due_steps"), limit)
    return [(StepRef(r["run_id"], r["step"]), r["tenant_id"]) for r in rows]


async def unadvanced_steps(connection: Connection, *, limit: int) -> list[tuple[UUID, str, Any, str | None]]:
    """Return (execution, state, result, reason) of steps of all tenants that ended without their run."""
    rows = await connection.fetch(q("unadvanced_steps"), limit)
    return [(r["execution_id"], r["state"], r["result"], r["reason"]) for r in rows]


async def steps_of_run(connection: Connection, *, run_id: UUID, items: bool, step: int | None = None) -> list[Any]:
    """Return the steps of a run, or one of them. The caller has checked the run's tenant."""
    return await connection.fetch(q("steps_of_run"), run_id, items, step)


async def steps_by_ref(connection: Connection, *, run_id: UUID, refs: Sequence[tuple[int, int]]) -> list[Any]:
    """Return steps by (number, item or WHOLE)."""
    numbers, items = [step for step, _ in refs], [item for _, item in refs]
    return await connection.fetch(q("steps_by_ref"), run_id, numbers, items)


async def step_states(
    connection: Connection, *, run_id: UUID, step: int | None = None
) -> list[tuple[tuple[int, int], str]]:
    """Return ((number, item), state) of each step, or of one step and its items."""
    row = await connection.fetchrow(q("step_states"), run_id, step)
    assert row is not None
    refs = zip(row["steps"] or (), row["items"] or (), strict=True)
    return list(zip(refs, row["states"] or (), strict=True))


async def steps_for_graph(connection: Connection, *, run_id: UUID) -> list[Any]:
    return await connection.fetch(q("steps_for_graph"), run_id)


def _group(r: Any) -> ItemGroup:
    return ItemGroup(StepRef(r["run_id"], r["step"]), r["items"], r["open_items"], r["failed_items"], r["next_item"])


def _ref_arrays(refs: Iterable[StepRef]) -> tuple[list[UUID], list[int], list[int]]:
    keys = list(refs)
    return [ref.run_id for ref in keys], [ref.step for ref in keys], [ref.item for ref in keys]
