"""Claiming: from queued to running, for a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.domain.job import JobSpec
from mainspring.store.db import Connection
from mainspring.store.hints import hint_queued
from mainspring.store.lines import LineRef
from mainspring.store.queries import q

Claimed = Any
"""A row: execution_id, job_id, version, attempt, session_id, fire_at, due_at, params, line_id, rank."""

Position = tuple[int, UUID]
"""A rank and an execution id in a line; a claim looks only beyond it."""

LINE_START: Position = (-(2**63), UUID(int=0))


async def claim(
    connection: Connection,
    *,
    tenant: int,
    line_id: int,
    after: Position,
    sessions: Sequence[UUID],
    slot_order: Sequence[int],
    key: int | None = None,
) -> list[Claimed]:
    """Claim the first executions of one line of this tenant.

    `slot_order` has one entry for each free slot, in the order they are filled: the 1-based index of its session in
    `sessions`. With a concurrency key, no more rows than the key has slots left; each row says how many (`slots`).
    """
    rows: list[Claimed] = (
        await connection.fetch(q("claim"), sessions, slot_order, line_id, *after, tenant)
        if key is None
        else await connection.fetch(q("claim_keyed"), sessions, slot_order, line_id, *after, tenant, key)
    )
    return rows


async def undelivered(connection: Connection, *, session_id: UUID, held: Sequence[UUID]) -> list[Claimed]:
    """Return the running executions of a session that its worker does not hold."""
    rows: list[Claimed] = await connection.fetch(q("undelivered"), session_id, held)
    return rows


async def peek(
    connection: Connection, *, lines: Sequence[tuple[int, Position, int]]
) -> dict[int, list[tuple[int, UUID]]]:
    """Return (rank, id) of the first executions of each line. `lines` are (id, after, most); a line has one tenant."""
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


async def start_matched(connection: Connection, *, matched: Sequence[tuple[UUID, UUID]]) -> list[Claimed]:
    """Start (execution, session) pairs; return those that started. Over all tenants: their lines have one."""
    sessions = list(dict.fromkeys(session for _, session in matched))
    index = {session: n for n, session in enumerate(sessions, start=1)}
    rows: list[Claimed] = await connection.fetch(
        q("start_matched"),
        sessions,
        [execution for execution, _ in matched],
        "queued",
        [index[session] for _, session in matched],
    )
    return rows


async def queued_lines(connection: Connection, *, limit: int) -> dict[int, int]:
    """Return the non-empty lines with their lowest rank. Over all tenants: only a hint which lines to claim from."""
    return {r["line_id"]: r["rank"] for r in await connection.fetch(q("queued_lines"), limit)}


async def jobs_without_line(connection: Connection, *, limit: int) -> dict[int, dict[UUID, JobSpec]]:
    """Return the specs, by tenant, of jobs without a line that have queued executions."""
    found: dict[int, dict[UUID, JobSpec]] = {}
    for r in await connection.fetch(q("jobs_without_line"), limit):
        found.setdefault(r["tenant_id"], {})[r["job_id"]] = msgspec.convert(r["spec"], JobSpec)
    return found


async def assign_job_lines(connection: Connection, *, tenant: int, lines: Mapping[UUID, LineRef]) -> None:
    await connection.execute(
        q("assign_job_lines"),
        tenant,
        list(lines),
        [ref.line_id for ref in lines.values()],
        [ref.limit_id for ref in lines.values()],
    )


async def assign_execution_lines(connection: Connection, *, limit: int) -> int:
    """Return how many were assigned. Over all tenants: each execution gets the line of its own job."""
    rows = await connection.fetch(q("assign_execution_lines"), limit)
    hint_queued(connection, rows)
    return sum(r["n"] for r in rows)


async def jobs_of_executions(connection: Connection, *, execution_ids: Sequence[UUID]) -> dict[UUID, tuple[UUID, int]]:
    """Return job and version of each. Over all tenants: the lines they were found in have one."""
    rows = await connection.fetch(q("jobs_of_executions"), execution_ids)
    return {r["execution_id"]: (r["job_id"], r["version"]) for r in rows}
