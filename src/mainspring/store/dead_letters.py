"""Dead letters: read, claim, edit, dismiss, replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from mainspring import ports, wire
from mainspring.domain.dead_letter import DeadLetterState
from mainspring.domain.job import JobSpec
from mainspring.store.db import Connection
from mainspring.store.hints import hint
from mainspring.store.queries import q

BEFORE_FIRST_GROUP = UUID(int=0), ""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects open dead letters by id, jobs or fingerprint, at most `limit`."""

    ids: Sequence[UUID] | None = None
    job_ids: Sequence[UUID] | None = None
    fingerprint: str | None = None
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class LockedDeadLetter:
    """A locked dead letter, with the columns that a replay needs."""

    dead_letter_id: UUID
    job_id: UUID
    fire_at: datetime
    params: Any
    replays: int
    gap_s: float = 0.0
    by: str = ""
    job: str = ""


async def count_open(connection: Connection, *, tenant: int) -> int:
    """Return the number of open dead letters."""
    return int(await connection.fetchval(q("count_open"), tenant))


async def dead_letter_by_id(connection: Connection, *, tenant: int, dead_letter_id: UUID) -> wire.DeadLetter | None:
    row = await connection.fetchrow(q("dead_letter_by_id"), dead_letter_id, tenant)
    return None if row is None else _dead_letter(row, msgspec.convert(row["spec"], JobSpec))


async def latest_dead_letter(connection: Connection, *, tenant: int) -> UUID | None:
    found: UUID | None = await connection.fetchval(q("latest_dead_letter"), tenant)
    return found


async def dead_letter_prefix(connection: Connection, *, tenant: int, prefix: str) -> list[UUID]:
    """Return at most two ids that begin with these hex digits."""
    low, high = UUID(prefix.ljust(32, "0")), UUID(prefix.ljust(32, "f"))
    return [r["dead_letter_id"] for r in await connection.fetch(q("dead_letter_prefix"), tenant, low, high)]


async def list_dead_letters(
    connection: Connection,
    *,
    tenant: int,
    before: UUID,
    limit: int,
    job_ids: Sequence[UUID] | None = None,
    fingerprint: str | None = None,
    states: Sequence[str] | None = None,
) -> list[wire.DeadLetter]:
    rows = await connection.fetch(
        q("list_dead_letters"), tenant, before, limit, job_ids, fingerprint, list(states) if states else None
    )
    return [_dead_letter(r) for r in rows]


async def group_dead_letters(
    connection: Connection, *, tenant: int, after: tuple[UUID, str], limit: int, count_to: int
) -> list[wire.DeadLetterGroup]:
    rows = await connection.fetch(q("group_dead_letters"), tenant, *after, limit, count_to)
    return [
        wire.DeadLetterGroup(
            job_id=r["job_id"],
            job=r["job_name"],
            fingerprint=r["fingerprint"],
            count=r["letters"],
            exact=r["letters"] < count_to,
            first_at=r["first_at"],
            last_at=r["last_at"],
            sample_id=r["sample_id"],
            ended_as=r["ended_as"],
            error=r["error"],
            reason=r["reason"],
            first_version=r["first_version"],
            claimed_by=r["claimed_by"] if r["is_claimed"] else None,
            by_hour=_by_hour(r["hours_ago"] or ()),
        )
        for r in rows
    ]


async def claim_dead_letters(
    connection: Connection, *, tenant: int, by: str, choice: DeadLetterFilter, for_s: float
) -> list[UUID]:
    rows = await connection.fetch(
        q("claim_dead_letters"), tenant, by, choice.ids, choice.job_ids, choice.fingerprint, choice.limit, for_s
    )
    return [r["dead_letter_id"] for r in rows]


async def lock_dead_letters(
    connection: Connection, *, tenant: int, by: str, choice: DeadLetterFilter
) -> list[LockedDeadLetter]:
    rows = await connection.fetch(
        q("lock_dead_letters"), tenant, by, choice.ids, choice.job_ids, choice.fingerprint, choice.limit
    )
    return [
        LockedDeadLetter(r["dead_letter_id"], r["job_id"], r["fire_at"], r["params"], r["replays"], job=r["job_name"])
        for r in rows
    ]


async def edit_dead_letter(
    connection: Connection, *, tenant: int, dead_letter_id: UUID, by: str, edit: wire.DeadLetterEdit
) -> bool:
    """Edit a dead letter; return whether it was possible.

    It is not while another user has claimed the letter; parameters can be edited only while it is open.
    """
    row = await connection.fetchrow(
        q("edit_dead_letter"),
        dead_letter_id,
        tenant,
        by,
        edit.note or None,
        edit.note is not None,
        edit.params,
        edit.params is not None,
    )
    return row is not None


async def release_dead_letter(connection: Connection, *, tenant: int, dead_letter_id: UUID, by: str) -> bool:
    return await connection.fetchval(q("release_dead_letter"), dead_letter_id, tenant, by) is not None


async def dismiss_dead_letters(
    connection: Connection, *, tenant: int, ids: Sequence[UUID], by: str, reason: str
) -> list[UUID]:
    rows = await connection.fetch(q("dismiss_dead_letters"), tenant, list(ids), by, reason)
    return [r["dead_letter_id"] for r in rows]


async def attach_step_letters(connection: Connection, *, run_ids: Sequence[UUID]) -> None:
    """Attach the dead letters of steps to those of their runs, which the caller has just closed."""
    await connection.execute(q("attach_step_letters"), list(run_ids))


async def close_attached(
    connection: Connection, *, tenant: int, ids: Sequence[UUID], state: DeadLetterState, by: str, reason: str
) -> list[UUID]:
    """Close the letters attached to dead letters of runs, which the caller has just closed or replayed."""
    rows = await connection.fetch(q("close_attached"), tenant, list(ids), state, by, reason)
    return [r["dead_letter_id"] for r in rows]


async def resolve_step_letters(
    connection: Connection, *, tenant: int, run_id: UUID, step: int, resolved_by: UUID, by: str, reason: str
) -> list[UUID]:
    """Resolve the open letters of a step that a user has freed; `resolved_by` is the run that continues."""
    rows = await connection.fetch(q("resolve_step_letters"), tenant, run_id, step, resolved_by, by, reason)
    return [r["dead_letter_id"] for r in rows]


async def mark_replayed(connection: Connection, *, tenant: int, replayed: Sequence[tuple[UUID, UUID]], by: str) -> None:
    """Mark locked dead letters as replaying, given as (dead letter, new execution)."""
    rows = await connection.fetch(
        q("mark_replayed"), tenant, [letter for letter, _ in replayed], [execution for _, execution in replayed], by
    )
    assert len(rows) == len(replayed), "their rows are locked"
    hint(connection, ports.REPLAYS)


async def hold_for_canary(
    connection: Connection, *, tenant: int, ids: Sequence[UUID], after: UUID, gap_s: float, by: str
) -> None:
    await connection.execute(q("hold_for_canary"), tenant, list(ids), after, gap_s, by)


async def close_replayed(connection: Connection, *, limit: int) -> dict[UUID, DeadLetterState]:
    """Close dead letters of all tenants whose replay has ended; return their new states."""
    return {r["dead_letter_id"]: r["state"] for r in await connection.fetch(q("close_replayed"), limit)}


async def resolve_before(connection: Connection, *, resolved: Sequence[UUID]) -> list[UUID]:
    return [r["dead_letter_id"] for r in await connection.fetch(q("resolve_before"), list(resolved))]


async def replays_under_way(connection: Connection) -> bool:
    return bool(await connection.fetchval(q("replays_under_way")))


async def decided_canaries(connection: Connection, *, limit: int) -> list[tuple[UUID, int, DeadLetterState | None]]:
    rows = await connection.fetch(q("decided_canaries"), limit)
    return [(r["replay_after"], r["tenant_id"], r["state"]) for r in rows]


async def lock_held(connection: Connection, *, tenant: int, after: UUID) -> list[LockedDeadLetter]:
    rows = await connection.fetch(q("lock_held"), tenant, after)
    return [
        LockedDeadLetter(
            r["dead_letter_id"],
            r["job_id"],
            r["fire_at"],
            r["params"],
            r["replays"],
            r["replay_gap_s"] or 0.0,
            r["replayed_by"],
        )
        for r in rows
    ]


async def reopen_held(connection: Connection, *, tenant: int, ids: Sequence[UUID]) -> None:
    await connection.execute(q("reopen_held"), tenant, list(ids))


async def forget_dead_letters(connection: Connection, *, after_s: float) -> None:
    """Delete old dead letters of all tenants."""
    await connection.execute(q("forget_dead_letters"), after_s)


def _by_hour(hours_ago: Sequence[int]) -> list[int]:
    """Counts of the last 24 hours, oldest first."""
    counts = Counter(hours_ago)
    return [counts[ago] for ago in range(23, -1, -1)]


def _dead_letter(r: Any, definition: JobSpec | None = None) -> wire.DeadLetter:
    return wire.DeadLetter(
        dead_letter_id=r["dead_letter_id"],
        job_id=r["job_id"],
        job=r["job_name"],
        version=r["version"],
        state=r["state"],
        ended_as=r["ended_as"],
        trigger=r["trigger"],
        queue=r["queue"],
        fingerprint=r["fingerprint"],
        fire_at=r["fire_at"],
        created_at=r["created_at"],
        exit_code=r["exit_code"],
        reason=r["reason"],
        error=r["error"],
        attempts=msgspec.convert(r["attempts"], list[wire.Attempt]),
        params=r["params"],
        new_params=r["new_params"],
        replay_of=r["replay_of"],
        claimed_by=r["claimed_by"],
        claimed_until=r["claimed_until"],
        note=r["note"],
        noted_by=r["noted_by"],
        replayed_as=r["replayed_as"],
        replayed_at=r["replayed_at"],
        replayed_by=r["replayed_by"],
        replay_after=r["replay_after"],
        resolved_by=r["resolved_by"],
        closed_at=r["closed_at"],
        closed_by=r["closed_by"],
        close_reason=r["close_reason"],
        run_id=r["run_id"],
        step=r["step_name"],
        definition=definition,
    )
