"""Claiming: from queued to running, for a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.job import JobSpec
from mainspring.store.db import Connection
from mainspring.store.lines import LineRef
from mainspring.store.queries import q

Claimed = Any
"""A row: execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank."""

Place = tuple[int, UUID]
"""A rank and an id: everything in a line that may be claimed lies beyond it."""

START: Place = (-(2**63), UUID(int=0))


async def claim(
    connection: Connection,
    *,
    tenant: int,
    line_id: int,
    after: Place,
    sessions: Sequence[UUID],
    turns: Sequence[int],
    key: int | None = None,
) -> list[Claimed]:
    """The best of one line of this tenant, for the slots `turns` names by their place (from 1) in `sessions`.

    Under a concurrency key not more than it has left; the rows say how many that were (`slots`).
    """
    rows: list[Claimed] = (
        await connection.fetch(q("claim"), sessions, turns, line_id, *after, tenant)
        if key is None
        else await connection.fetch(q("claim_keyed"), sessions, turns, line_id, *after, tenant, key)
    )
    return rows


async def peek(connection: Connection, *, lines: Sequence[tuple[int, Place, int]]) -> dict[int, list[tuple[int, UUID]]]:
    """(rank, id) of the best of each line, in order; lines as (id, after, most). A line has one tenant."""
    found: dict[int, list[tuple[int, UUID]]] = {line_id: [] for line_id, _, _ in lines}
    rows = await connection.fetch(
        q("peek"),
        [line[0] for line in lines],
        [line[1][0] for line in lines],
        [line[1][1] for line in lines],
        [line[2] for line in lines],
    )
    for line_id, execution_id, rank in rows:
        found[line_id].append((rank, execution_id))
    return found


async def take(connection: Connection, *, matched: Sequence[tuple[UUID, UUID]]) -> list[Claimed]:
    """Executions with their sessions in; those that could be taken out. The lines they came from have a tenant."""
    sessions = list(dict.fromkeys(session for _, session in matched))
    place = {session: n for n, session in enumerate(sessions, start=1)}
    rows: list[Claimed] = await connection.fetch(
        q("take"),
        sessions,
        [execution for execution, _ in matched],
        "queued",
        [place[session] for _, session in matched],
    )
    return rows


async def queued_lines(connection: Connection, *, limit: int) -> dict[int, int]:
    """Lines with something in them, with their lowest rank. Over all tenants: it decides whether a claim, which is for
    one line, is worth its while."""
    return {r["line_id"]: r["rank"] for r in await connection.fetch(q("queued_lines"), limit)}


async def lineless_jobs(connection: Connection, *, limit: int) -> dict[int, dict[UUID, JobSpec]]:
    """Definitions, by tenant, of the jobs without a line among those that something queued has none of."""
    found: dict[int, dict[UUID, JobSpec]] = {}
    for r in await connection.fetch(q("lineless_jobs"), limit):
        found.setdefault(r["tenant_id"], {})[r["job_id"]] = msgspec.convert(r["spec"], JobSpec)
    return found


async def adopt_jobs(connection: Connection, *, tenant: int, lines: Mapping[UUID, LineRef]) -> None:
    """In the order of `lines`."""
    await connection.execute(
        q("adopt_jobs"),
        tenant,
        list(lines),
        [ref.line_id for ref in lines.values()],
        [ref.limit_id for ref in lines.values()],
    )


async def adopt_executions(connection: Connection, *, limit: int) -> int:
    """Over all tenants: each joins the line of its own job."""
    return sum(r["n"] for r in await connection.fetch(q("adopt_executions"), limit))


async def jobs_of(connection: Connection, *, execution_ids: Sequence[UUID]) -> dict[UUID, tuple[UUID, int]]:
    """Job and version of each, over all tenants: the lines they were found in have one."""
    rows = await connection.fetch(q("jobs_of"), execution_ids)
    return {r["execution_id"]: (r["job_id"], r["version"]) for r in rows}
