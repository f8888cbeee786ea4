"""Jobs that need others: they run when all of these have succeeded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring import ports, wire
from mainspring.store.db import Connection
from mainspring.store.hints import hint, hint_placed
from mainspring.store.queries import q

NOT_RUN = "parents_not_run"
"""A job that declares this parameter receives the names of needed jobs that a user skipped."""


@dataclass(frozen=True, slots=True)
class NeedingJob:
    """A job that needs another."""

    job_id: UUID
    name: str
    shard: int


@dataclass(frozen=True, slots=True)
class ReadyJob:
    """A job whose needs are met; `not_run` are the needed jobs that a user skipped."""

    job_id: UUID
    tenant: int
    parents: list[str]
    not_run: list[str]


@dataclass(frozen=True, slots=True)
class NeededJob:
    """What a job needs: the name of the other job, and the limits of that need."""

    child: UUID
    parent: str
    timeout_s: float | None
    wait_s: float | None


@dataclass(frozen=True, slots=True)
class NeedRow:
    """A need to write, or to delete."""

    child: UUID
    parent: UUID
    timeout_s: float | None = None
    wait_s: float | None = None


async def lock_tenant(connection: Connection, *, tenant: int) -> None:
    await connection.execute(q("lock_tenant"), tenant)


async def path_between(connection: Connection, *, tenant: int, start: UUID, end: UUID) -> list[str] | None:
    found: list[str] | None = await connection.fetchval(q("path_between"), tenant, start, end)
    return found


async def insert_need(
    connection: Connection,
    *,
    tenant: int,
    child: UUID,
    parent: UUID,
    timeout_s: float | None,
    wait_s: float | None,
    by: str,
) -> None:
    await connection.execute(q("insert_need"), child, parent, tenant, timeout_s, by, wait_s)
    hint(connection, ports.RUNS, ports.NEEDS)


async def delete_need(connection: Connection, *, tenant: int, child: UUID, parent: UUID) -> bool:
    """Delete a need; return whether there was one. All needs of the child are locked first, as in `release`."""
    await connection.execute(q("lock_needs"), [child])
    hint(connection, ports.RUNS, ports.NEEDS)
    return await connection.fetchval(q("delete_need"), child, parent, tenant) is not None


async def change_needs(
    connection: Connection, *, tenant: int, by: str, wanted: Sequence[NeedRow], unwanted: Sequence[NeedRow]
) -> bool:
    """Write and delete needs of many jobs, all of which are locked first; return whether all to delete existed."""
    await connection.execute(q("lock_needs"), sorted({row.child for row in [*wanted, *unwanted]}))
    gone = []
    if unwanted:
        gone = await connection.fetch(
            q("delete_needs"), tenant, [row.child for row in unwanted], [row.parent for row in unwanted]
        )
    if wanted:
        await connection.execute(
            q("write_needs"),
            tenant,
            by,
            [row.child for row in wanted],
            [row.parent for row in wanted],
            [row.timeout_s for row in wanted],
            [row.wait_s for row in wanted],
        )
    hint(connection, ports.RUNS, ports.NEEDS)
    return len(gone) == len(unwanted)


async def mark_all_needing(connection: Connection, *, tenant: int, changes: Mapping[UUID, int]) -> None:
    """Update the flags of jobs; `changes` has the change number of the shard of each."""
    await connection.execute(q("mark_all_needing"), tenant, list(changes), list(changes.values()))


async def needs_of_jobs(connection: Connection, *, tenant: int, children: Sequence[UUID]) -> list[NeededJob]:
    rows = await connection.fetch(q("needs_of_jobs"), tenant, children)
    return [NeededJob(r["child_id"], r["parent"], r["timeout_s"], r["wait_s"]) for r in rows]


async def needs_above(connection: Connection, *, tenant: int, names: Sequence[str]) -> dict[str, set[str]]:
    """Return what these jobs need, what those need, and so on: the names of the needed jobs by name."""
    found: dict[str, set[str]] = {}
    for row in await connection.fetch(q("needs_above"), tenant, names):
        found.setdefault(row["child"], set()).add(row["parent"])
    return found


async def names_needing(connection: Connection, *, tenant: int, names: Sequence[str]) -> set[str]:
    """Return which of these jobs need others."""
    return {r["name"] for r in await connection.fetch(q("names_needing"), tenant, names)}


async def needing(connection: Connection, *, tenant: int, parent: UUID) -> list[NeedingJob]:
    rows = await connection.fetch(q("needing"), parent, tenant)
    return [NeedingJob(r["job_id"], r["name"], r["shard"]) for r in rows]


async def drop_needs(connection: Connection, *, tenant: int, job_id: UUID) -> None:
    """Delete the needs of and for a job; the needs of its children are locked first, as in `release`."""
    children = [r["child_id"] for r in await connection.fetch(q("children_of"), job_id, tenant)]
    await connection.execute(q("lock_needs"), sorted([*children, job_id]))
    if await connection.fetch(q("drop_needs"), job_id, tenant):
        hint(connection, ports.RUNS, ports.NEEDS)


async def mark_needing(connection: Connection, *, tenant: int, child: UUID, change: int) -> None:
    await connection.execute(q("mark_needing"), child, tenant, change)


async def needs_of(connection: Connection, *, tenant: int, child: UUID) -> list[wire.Dependency]:
    return [_dependency(r) for r in await connection.fetch(q("needs_of"), child, tenant)]


async def related_needs(connection: Connection, *, tenant: int, job_id: UUID) -> list[tuple[str, str]]:
    """Return (child, parent) of each need connected with a job."""
    return [(r["child"], r["parent"]) for r in await connection.fetch(q("related_needs"), job_id, tenant)]


async def ready_children(connection: Connection, *, limit: int, child: UUID | None = None) -> list[ReadyJob]:
    """Return jobs of all tenants whose needs are met."""
    rows = await connection.fetch(q("ready_children"), child, limit)
    return [ReadyJob(r["child_id"], r["tenant_id"], r["parents"], r["not_run"] or []) for r in rows]


async def use_up_needs(connection: Connection, *, tenant: int, child: UUID) -> None:
    await connection.execute(q("lock_needs"), [child])
    await connection.execute(q("use_up_needs"), child, tenant)


async def free_needs(
    connection: Connection, *, tenant: int, parent: UUID, freed_as: str, by: str, reason: str
) -> list[UUID]:
    """Release the jobs that need a parent without its success; return them.

    Their needs and those of the parent are locked by one statement, in key order: a transaction that locks needs
    twice, in whatever order, can deadlock with another.
    """
    children = [r["child_id"] for r in await connection.fetch(q("children_of"), parent, tenant)]
    await connection.execute(q("lock_needs"), sorted([*children, parent]))
    rows = await connection.fetch(q("free_needs"), parent, tenant, freed_as, by, reason, children)
    if rows:
        hint(connection, ports.RUNS, ports.WAKE)
    return [r["child_id"] for r in rows]


async def has_needs(connection: Connection) -> bool:
    """Return whether any job of any tenant needs another."""
    return bool(await connection.fetchval(q("has_needs")))


async def release_after(connection: Connection, *, execution_ids: Iterable[UUID]) -> list[UUID]:
    """Release fires that waited for executions that succeeded in this transaction, of any tenant."""
    rows = await connection.fetch(q("needing_children"), sorted(execution_ids))
    if not all(r["scheduled"] for r in rows):  # the leader executes those without a schedule
        hint(connection, ports.RUNS, ports.WAKE)
    scheduled = [r["child_id"] for r in rows if r["scheduled"]]
    return await release(connection, children=scheduled) if scheduled else []


async def release(connection: Connection, *, children: Iterable[UUID]) -> list[UUID]:
    """Release waiting executions of these jobs whose needs are met; return them.

    Needs a transaction. The needs are locked before they are read, so of a parent that ends and a fire that starts to
    wait, the second transaction sees the first.
    """
    wanted = sorted(set(children))
    await connection.execute(q("lock_needs"), wanted)
    await connection.execute(q("note_waits"), wanted)
    rows = await connection.fetch(q("release_met"), wanted, NOT_RUN)
    hint_placed(connection, rows)
    return [r["execution_id"] for r in rows]


async def waiting_children(connection: Connection, *, limit: int) -> list[UUID]:
    """Return jobs of all tenants with an execution that waits for their needs."""
    return [r["job_id"] for r in await connection.fetch(q("waiting_children"), limit)]


async def skip_unmet(connection: Connection, *, limit: int) -> list[tuple[UUID, UUID | None]]:
    """Skip executions of all tenants that waited too long; return each with its job if a release may follow."""
    return [(r["execution_id"], r["chained"]) for r in await connection.fetch(q("skip_unmet"), limit)]


def _dependency(r: Any) -> wire.Dependency:
    freed = r["freed_at"] is not None and r["freed_at"] > r["since_at"]
    state: Any = "pending"
    if freed or (r["succeeded_at"] is not None and not r["stale"]):
        state = "satisfied"
    elif r["stale"]:
        state = "stale"
    elif r["last_state"] is not None:
        state = "failed"
    return wire.Dependency(
        job=r["name"],
        job_id=r["parent_id"],
        state=state,
        since_at=r["since_at"],
        succeeded_at=r["succeeded_at"],
        timeout_s=r["timeout_s"],
        wait_s=r["wait_s"],
        created_by=r["created_by"],
        freed_at=r["freed_at"],
        freed_as=r["freed_as"],
        freed_by=r["freed_by"],
        reason=r["reason"],
        deleted_at=r["deleted_at"],
    )
