"""Replay dead letters: new executions of the current job, for the same nominal time.

The dead letter's row stays locked until it is marked, and the execution's id derives from it: a double click replays
once. The leader reads the outcomes of replays afterwards, so that settling needs no code for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog

from mainspring import wire
from mainspring.clock import instant, millis
from mainspring.domain.dead_letter import parse_rate, replay_key
from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.execution import execution_id, is_step
from mainspring.intake.dead_letters import refusal, resolve_choice
from mainspring.intake.executions import with_lines
from mainspring.intake.validate.params import check_params
from mainspring.store import audit, dead_letters, executions, jobs
from mainspring.store.audit import AuditSubject
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.dead_letters import DeadLetterFilter, LockedDeadLetter
from mainspring.store.executions import NewExecution
from mainspring.views.dead_letters import read

log = structlog.get_logger()

MAX_ITEMS = 100
"""An answer lists at most this many dead letters."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The executions that a replay creates, and the dead letters it refuses with the reason."""

    new: list[tuple[LockedDeadLetter, NewExecution]]
    refused: list[tuple[LockedDeadLetter, str]]


async def replay_one(
    database: Database, dead_letter_id: UUID, request: wire.ReplayOne, *, tenant: int, by: str
) -> wire.Replay:
    """Replay one dead letter. Repeating the request returns the same execution."""
    async with database.transaction() as connection:
        choice = DeadLetterFilter(ids=[dead_letter_id], limit=1)
        held = await dead_letters.lock_dead_letters(connection, tenant=tenant, by=by, choice=choice)
        if not held:
            letter = await read(connection, dead_letter_id, tenant=tenant)
            if letter.replayed_as is None or letter.state not in ("replaying", "resolved", "superseded"):
                raise refusal(letter, by, instant(int(await database_now_ms(connection))))
            again = wire.ReplayItem(dead_letter_id=dead_letter_id, execution_id=letter.replayed_as)
            return wire.Replay(dry_run=request.dry_run, replayed=1, held=0, refused=0, items=[again])
        if request.params is not None:
            held = [_with_params(held[0], request.params)]
            if not request.dry_run:
                edit = wire.DeadLetterEdit(params=request.params)
                await dead_letters.edit_dead_letter(
                    connection, tenant=tenant, dead_letter_id=dead_letter_id, by=by, edit=edit
                )
        plan = await _plan(connection, held, tenant=tenant, gap_s=0.0)
        if plan.refused:
            raise Invalid(plan.refused[0][1], code="not_replayable")
        if not request.dry_run:
            plan = await _execute(connection, plan, tenant=tenant, by=by)
    return _answer(plan, dry_run=request.dry_run)


async def replay_many(database: Database, request: wire.ReplayMany, *, tenant: int, by: str) -> wire.Replay:
    """Replay all that match and no other user has claimed; with a canary, the others wait for the first."""
    gap_s = _gap_s(request.rate)
    choice = await resolve_choice(database, request, tenant=tenant)
    async with database.transaction() as connection:
        held = await dead_letters.lock_dead_letters(connection, tenant=tenant, by=by, choice=choice)
        plan = await _plan(connection, held, tenant=tenant, gap_s=gap_s)
        rest: list[LockedDeadLetter] = []
        if request.canary and len(plan.new) > 1:
            rest = [letter for letter, _ in plan.new[1:]]
            plan = ReplayPlan(plan.new[:1], plan.refused)
        if plan.new and not request.dry_run:
            plan = await _execute(connection, plan, tenant=tenant, by=by)
            if rest and not plan.new:
                rest = []
            elif rest:
                await dead_letters.hold_for_canary(
                    connection,
                    tenant=tenant,
                    ids=[letter.dead_letter_id for letter in rest],
                    after=plan.new[0][0].dead_letter_id,
                    gap_s=gap_s,
                    by=by,
                )
    return _answer(plan, dry_run=request.dry_run, rest=rest, canary=request.canary)


async def follow_replays(database: Database) -> bool:
    """Close dead letters whose replays have ended, and continue after canaries; return whether any replay is open."""
    async with database.connection() as connection:
        if not await dead_letters.replays_under_way(connection):
            return False
    while True:
        async with database.transaction() as connection:
            closed = await dead_letters.close_replayed(connection, limit=BATCH)
            resolved = [letter for letter, state in closed.items() if state == "resolved"]
            while resolved:
                resolved = await dead_letters.resolve_before(connection, resolved=resolved)
        if len(closed) < BATCH:
            break
    async with database.connection() as connection:
        decided = await dead_letters.decided_canaries(connection, limit=BATCH)
    for canary, tenant, state in decided:
        async with database.transaction() as connection:
            await _after_canary(connection, canary, tenant=tenant, succeeded=state == "resolved")
    async with database.connection() as connection:
        return await dead_letters.replays_under_way(connection)


async def _after_canary(connection: Connection, canary: UUID, *, tenant: int, succeeded: bool) -> None:
    waiting = await dead_letters.lock_held(connection, tenant=tenant, after=canary)
    if not waiting:
        return
    free = [letter.dead_letter_id for letter in waiting]
    if succeeded:
        plan = await _plan(connection, waiting, tenant=tenant, gap_s=waiting[0].gap_s)
        plan = await _execute(connection, plan, tenant=tenant, by=waiting[0].by)
        free = [letter.dead_letter_id for letter, _ in plan.refused]
    if free:
        await dead_letters.reopen_held(connection, tenant=tenant, ids=free)
        log.warning("dead_letters.reopened_after_canary", letters=len(free), canary_succeeded=succeeded)


async def _plan(
    connection: Connection, letters: Sequence[LockedDeadLetter], *, tenant: int, gap_s: float
) -> ReplayPlan:
    """Plan one execution each, `gap_s` apart; refuse those that the current job does not accept."""
    now_ms = int(await database_now_ms(connection))
    known = {
        job_id: await jobs.job_by_id(connection, tenant=tenant, job_id=job_id)
        for job_id in sorted({letter.job_id for letter in letters})
    }
    plan = ReplayPlan([], [])
    for letter in letters:
        row = known[letter.job_id]
        if is_step(letter.dead_letter_id):
            plan.refused.append(
                (letter, "it is a step of a run: rerun that run (mainspring runs rerun), then dismiss this")
            )
            continue
        if row is None or row.deleted_at is not None:
            plan.refused.append((letter, "its job has been deleted: dismiss the dead letter"))
            continue
        try:
            check_params(row.spec, letter.params)
        except Invalid as error:
            plan.refused.append((letter, f"{error.message}: edit its params"))
            continue
        id_ = execution_id(letter.job_id, millis(letter.fire_at), replay_key(letter.dead_letter_id, letter.replays))
        due_at = instant(now_ms + round(len(plan.new) * gap_s * 1000))
        plan.new.append((letter, NewExecution(id_, letter.job_id, "replay", due_at, letter.params, letter.fire_at)))
    return plan


async def _execute(connection: Connection, plan: ReplayPlan, *, tenant: int, by: str) -> ReplayPlan:
    """Insert the executions and mark the dead letters; those whose job was deleted meanwhile are refused."""
    if not plan.new:
        return plan
    new = await with_lines(connection, [execution for _, execution in plan.new], tenant=tenant)
    added = await executions.insert_executions(connection, tenant=tenant, new=new, created_by=by)
    made = [(letter, execution) for letter, execution in plan.new if execution.execution_id in added]
    gone = [(letter, "its job has been deleted") for letter, e in plan.new if e.execution_id not in added]
    await dead_letters.mark_replayed(
        connection,
        tenant=tenant,
        by=by,
        replayed=[(letter.dead_letter_id, execution.execution_id) for letter, execution in made],
    )
    await dead_letters.close_attached(
        connection,
        tenant=tenant,
        ids=[letter.dead_letter_id for letter, _ in made],
        state="superseded",
        by=by,
        reason="its run was replayed",
    )
    entries = [AuditSubject(str(x.dead_letter_id), None, {"execution_id": str(e.execution_id)}) for x, e in made]
    await audit.record_all(connection, "dead_letter.replay", entries, tenant=tenant, by=by)
    return ReplayPlan(made, plan.refused + gone)


def _answer(
    plan: ReplayPlan, *, dry_run: bool, rest: Sequence[LockedDeadLetter] = (), canary: bool = False
) -> wire.Replay:
    items = [
        *(wire.ReplayItem(execution_id=e.execution_id, due_at=e.due_at, **_named(letter)) for letter, e in plan.new),
        *(wire.ReplayItem(**_named(letter)) for letter in rest),
        *(wire.ReplayItem(problem=why, **_named(letter)) for letter, why in plan.refused),
    ]
    return wire.Replay(
        dry_run=dry_run,
        replayed=len(plan.new),
        held=len(rest),
        refused=len(plan.refused),
        items=items[:MAX_ITEMS],
        canary=plan.new[0][0].dead_letter_id if canary and plan.new else None,
    )


def _named(letter: LockedDeadLetter) -> dict[str, Any]:
    return {"dead_letter_id": letter.dead_letter_id, "fire_at": letter.fire_at, "job": letter.job or None}


def _gap_s(rate: str | None) -> float:
    try:
        return 0.0 if rate is None else parse_rate(rate)
    except ValueError as error:
        raise invalid("/rate", str(error), hint="such as 10/1m, or 5/s") from None


def _with_params(letter: LockedDeadLetter, params: dict[str, object]) -> LockedDeadLetter:
    return replace(letter, params=params)
