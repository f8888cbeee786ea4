"""Begins runs: an execution of a workflow becomes a run with all its steps, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from mainspring.clock import millis
from mainspring.domain.duration import parse_duration
from mainspring.domain.params import given_problems
from mainspring.runs.advance import Ending, Moved, Turn, advance, settle_heads
from mainspring.runs.plans import Known, Plans
from mainspring.store import runs
from mainspring.store.db import Connection
from mainspring.store.runs import WHOLE, Claimed, Closed, Finish, NewRun, NewStep, Place, Run

MOST_DEPTH = 10
"""So deep may workflows contain one another: one that contains itself comes to an end."""


async def start_runs(
    connection: Connection,
    plans: Plans,
    execution_ids: Sequence[UUID],
    *,
    rerun: tuple[UUID, int] | None = None,
    kept: Mapping[int, Finish] | None = None,
    moved: Moved | None = None,
) -> Moved:
    """Starts those that are queued. A rerun has the version of the run it repeats, and keeps some of its steps."""
    moved = moved or Moved()
    new: list[NewRun] = []
    steps: list[NewStep] = []
    known_by_run: dict[UUID, Known] = {}
    held: dict[UUID, Run] = {}
    lost: list[tuple[Claimed, str]] = []
    for c in await runs.claim_runs(connection, execution_ids=execution_ids):
        version = c.version if rerun is None else rerun[1]
        known = await plans.get(connection, tenant=c.tenant, job_id=c.job_id, version=version)
        if known is None or (wrong := _wrong(c, known)) is not None:
            lost.append((c, f"there is no version {version} of it" if known is None else wrong or ""))
            continue
        spec = known.plan.spec
        known_by_run[c.run_id] = known
        held[c.run_id] = Run(
            c.run_id, c.tenant, c.job_id, known.version, "running", c.params, c.fire_at, c.started_at, c.depth, None
        )
        new.append(
            NewRun(
                c,
                known.version,
                len(known.plan.steps),
                None if spec.timeout is None else parse_duration(spec.timeout),
                None if spec.sla is None else parse_duration(spec.sla),
                None if rerun is None else rerun[0],
            )
        )
        steps += _steps(c, known)
    if new:
        await runs.insert_runs(connection, new=new)
        await runs.insert_run_steps(connection, steps=steps)
        turn = Turn(connection, held, known_by_run)
        ended = [
            Finish(Place(run_id, number), f.state, f.weight, f.result, f.reason, f.by, f.flag)
            for run_id in held
            for number, f in (kept or {}).items()
        ]
        ready = [
            (Place(run_id, step.number), 0, 0, 0)
            for run_id, known in known_by_run.items()
            for step in known.plan.steps
            if not step.needs and step.number not in (kept or {})
        ]
        await turn.start(ready, ended)
        await advance(connection, plans, await turn.close(moved), moved)
    if lost:
        await _refuse(connection, plans, lost, moved)
    return moved


def _steps(c: Claimed, known: Known) -> list[NewStep]:
    started_ms = millis(c.started_at)
    return [
        NewStep(
            Place(c.run_id, step.number),
            known.execution(c.run_id, started_ms, step, WHOLE) if _is_one_execution(step.spec) else None,
            len(step.needs),
            step.number in known.plan.wanted,
        )
        for step in known.plan.steps
    ]


def _is_one_execution(spec: object) -> bool:
    kind = getattr(spec, "kind", "")
    return kind in ("task", "workflow") and getattr(spec, "map", None) is None and getattr(spec, "repeat", None) is None


def _wrong(c: Claimed, known: Known) -> str | None:
    """Why a run can't begin. Params that a run gives to one inside it are known only now."""
    if not c.depth:
        return None
    if c.depth > MOST_DEPTH:
        return f"workflows contain one another more than {MOST_DEPTH} deep"
    declared, given = known.plan.spec.params, c.params or {}
    if given and not declared:
        return f"{known.plan.spec.name} has no parameters"
    problems = given_problems(declared, frozenset(), given)
    return f"{known.plan.spec.name}: {problems[0].message}" if problems else None


async def _refuse(connection: Connection, plans: Plans, lost: Sequence[tuple[Claimed, str]], moved: Moved) -> None:
    closed = [(Closed(c.run_id, "failed", c.attempt, words, 0.0, None), None) for c, words in lost]
    await settle_heads(connection, closed, moved.done)
    endings = [Ending(c.run_id, "failed", None, words) for c, words in lost if c.depth]
    await advance(connection, plans, endings, moved)
