"""Lines and limit keys.

A line is the set of queued executions with the same queue, demands and limit keys. Lines and keys are interned: unique
by content and stored once, however many jobs share them. Claims look at lines, not at single executions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import msgspec

from mainspring.clock import instant
from mainspring.domain.job import JobSpec
from mainspring.domain.limit import StartPacing
from mainspring.domain.placement.demand import Demand, read_demand
from mainspring.domain.placement.line import LimitKey, LineSpec
from mainspring.store.db import Connection
from mainspring.store.hints import hint_freed
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class LineRef:
    """The line of an execution, and the concurrency key it counts against."""

    line_id: int
    limit_id: int | None


@dataclass(frozen=True, slots=True)
class LineRow:
    line_id: int
    tenant: int
    queue: str
    demand: Demand
    limit_id: int
    rate_id: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A locked limit key: its maximum number of running executions, or its pace."""

    limit_id: int
    most: int
    pace: StartPacing | None
    now_ms: float

    def started(self, n: int) -> Limit:
        """Return the key after `n` starts under its rate."""
        assert self.pace is not None
        return replace(self, pace=replace(self.pace, next_ms=self.pace.after(n, self.now_ms)))


@dataclass(frozen=True, slots=True)
class Holder:
    execution_id: UUID
    job: str
    started_at: datetime


@dataclass(slots=True)
class KeyState:
    """A limit key and the executions that hold its slots."""

    kind: str
    key: str
    most: int
    per_s: float | None
    next_at: datetime | None
    holders: list[Holder]


async def intern_lines(connection: Connection, *, tenant: int, specs: Sequence[LineSpec]) -> list[LineRef]:
    """Return the line of each spec, inserting lines that do not exist yet."""
    limits = await _intern_limits(connection, tenant, specs)
    rows = [
        (s.queue, s.demand.key, limits[_name(s.limit)] if s.limit else 0, limits[_name(s.rate)] if s.rate else 0)
        for s in specs
    ]
    # Sorted, so that concurrent transactions insert in the same order and can't deadlock.
    wanted = sorted(set(rows))
    columns = [[row[n] for row in wanted] for n in range(4)]
    await connection.execute(q("touch_lines"), tenant, *columns)
    found = [r["line_id"] for r in await connection.fetch(q("find_lines"), tenant, *columns)]
    by_content = dict(zip(wanted, found, strict=True))
    return [LineRef(by_content[row], row[2] or None) for row in rows]


async def _intern_limits(connection: Connection, tenant: int, specs: Sequence[LineSpec]) -> dict[tuple[str, str], int]:
    keys = {_name(key): key for spec in specs for key in (spec.limit, spec.rate) if key is not None}
    if not keys:
        return {}
    names = sorted(keys)
    kinds, values = [kind for kind, _ in names], [value for _, value in names]
    written = await connection.fetch(
        q("touch_limits"),
        tenant,
        kinds,
        values,
        [keys[n].most for n in names],
        [keys[n].per_s for n in names],
        [keys[n].burst for n in names],
    )
    hint_freed(connection, (r["limit_id"] for r in written))  # a changed limit may allow starts
    found = await connection.fetch(q("find_limits"), tenant, kinds, values)
    return dict(zip(names, [r["limit_id"] for r in found], strict=True))


def _name(key: LimitKey) -> tuple[str, str]:
    return ("concurrency" if key.per_s is None else "rate", key.key)


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A Python job or step whose line names no function. `number` is the version and step of a step."""

    job_id: UUID
    tenant: int
    line_id: int
    owner: UUID  # the job that its executions have
    spec: JobSpec
    number: tuple[int, int] = (0, 0)


async def jobs_without_function(connection: Connection, *, after: UUID, limit: int) -> list[Unnamed]:
    """Over all tenants: this is maintenance."""
    return [
        Unnamed(r["job_id"], r["tenant_id"], r["line_id"], r["job_id"], msgspec.convert(r["spec"], JobSpec))
        for r in await connection.fetch(q("jobs_without_function"), after, limit)
    ]


async def steps_without_function(connection: Connection, *, after: tuple[UUID, int, int], limit: int) -> list[Unnamed]:
    """Over all tenants: this is maintenance."""
    return [
        Unnamed(
            r["job_id"],
            r["tenant_id"],
            r["line_id"],
            r["steps_id"],
            msgspec.convert(r["spec"], JobSpec),
            (r["version"], r["step"]),
        )
        for r in await connection.fetch(q("steps_without_function"), *after, limit)
    ]


async def move_jobs(connection: Connection, *, tenant: int, moves: Sequence[tuple[Unnamed, int]]) -> None:
    """Move jobs to other lines, given as (job, new line)."""
    await connection.execute(
        q("move_jobs"), tenant, [u.job_id for u, _ in moves], [u.line_id for u, _ in moves], [new for _, new in moves]
    )


async def move_steps(connection: Connection, *, tenant: int, moves: Sequence[tuple[Unnamed, int]]) -> None:
    """Move steps to other lines, given as (step, new line)."""
    await connection.execute(
        q("move_steps"),
        tenant,
        [u.job_id for u, _ in moves],
        [u.number[0] for u, _ in moves],
        [u.number[1] for u, _ in moves],
        [u.line_id for u, _ in moves],
        [new for _, new in moves],
    )


async def lines_by_id(connection: Connection, *, line_ids: Sequence[int]) -> list[LineRow]:
    """Over all tenants: each line names its tenant."""
    rows = await connection.fetch(q("lines_by_id"), line_ids)
    return [
        LineRow(r["line_id"], r["tenant_id"], r["queue"], read_demand(r["demand"]), r["limit_id"], r["rate_id"])
        for r in rows
    ]


async def lock_limits(connection: Connection, *, limit_ids: Sequence[int]) -> list[Limit]:
    """Lock the keys until the end of the transaction. Over all tenants: the lines they are from have one."""
    return [
        Limit(r["limit_id"], r["most"], _pace(r["most"], r["per_s"], r["burst"], r["next_at"]), _exact_ms(r["now"]))
        for r in await connection.fetch(q("lock_limits"), limit_ids)
    ]


async def count_holders(connection: Connection, *, limit_ids: Sequence[int]) -> dict[int, int]:
    """Return the slots taken of each key. The caller has locked the keys."""
    return {r["limit_id"]: r["n"] for r in await connection.fetch(q("count_holders"), limit_ids)}


async def limit_of_execution(connection: Connection, *, tenant: int, execution_id: UUID) -> tuple[int, str] | None:
    """Return the concurrency key of a live execution, if it has one."""
    row = await connection.fetchrow(q("limit_of_execution"), execution_id, tenant)
    return None if row is None else (row["limit_id"], row["key"])


async def advance_rates(connection: Connection, *, next_ms: dict[int, float]) -> None:
    """Store the next allowed start of each rate. The caller has locked the keys."""
    await connection.execute(q("advance_rates"), list(next_ms), [instant(ms) for ms in next_ms.values()])


async def limit_holders(connection: Connection, *, tenant: int, limit_ids: Sequence[int]) -> dict[int, KeyState]:
    found: dict[int, KeyState] = {}
    for r in await connection.fetch(q("limit_holders"), tenant, limit_ids):
        state = found.setdefault(r["limit_id"], KeyState(r["kind"], r["key"], r["most"], r["per_s"], r["next_at"], []))
        if r["execution_id"] is not None:
            state.holders.append(Holder(r["execution_id"], r["job_name"], r["started_at"]))
    return found


async def forget_lines(connection: Connection) -> None:
    """Delete unused lines and keys. Over all tenants: this is maintenance."""
    await connection.execute(q("forget_lines"))
    await connection.execute(q("forget_limits"))


def _exact_ms(at: datetime) -> float:
    return at.timestamp() * 1000


def _pace(most: int, per_s: float | None, burst: int, next_at: datetime | None) -> StartPacing | None:
    if per_s is None:
        return None
    return StartPacing(per_s * 1000 / most, burst, None if next_at is None else _exact_ms(next_at))
