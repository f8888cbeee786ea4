"""Requests for timeouts above the maximum of a queue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mainspring.domain.principal import Principal
from mainspring.store.db import Connection
from mainspring.store.queries import q

State = Literal["requested", "approved", "refused", "withdrawn"]


@dataclass(frozen=True, slots=True)
class DurationRequestRow:
    request_id: UUID
    job: str
    queue: str
    timeout_s: float
    reason: str
    state: State
    requested_at: datetime
    requested_by: str
    person_id: UUID
    decided_at: datetime | None
    decided_by: str | None
    note: str | None
    issuers: list[UUID]  # of the token that requested it


async def insert_duration_request(
    connection: Connection,
    *,
    tenant: int,
    request_id: UUID,
    job: str,
    queue: str,
    timeout_s: float,
    reason: str,
    by: Principal,
    most: int,
) -> DurationRequestRow | None:
    """Add a request; None if the tenant has `most` open ones. Raises `Taken` if the job has one for this queue."""
    row = await connection.fetchrow(
        q("insert_duration_request"),
        *(request_id, tenant, job, queue, timeout_s, reason, by, most, by.person_id, sorted(by.issuers)),
    )
    return None if row is None else _row(row)


async def list_duration_requests(
    connection: Connection, *, tenant: int, limit: int, state: str | None, before: tuple[datetime, UUID] | None
) -> list[DurationRequestRow]:
    at, request_id = before or (None, None)
    return [_row(r) for r in await connection.fetch(q("list_duration_requests"), tenant, limit, state, at, request_id)]


async def lock_duration_request(connection: Connection, *, tenant: int, request_id: UUID) -> DurationRequestRow | None:
    """A request; its row is locked until the end of the transaction."""
    row = await connection.fetchrow(q("lock_duration_request"), request_id, tenant)
    return None if row is None else _row(row)


async def decide_duration_request(
    connection: Connection, *, tenant: int, request_id: UUID, before: State, state: State, by: str, note: str
) -> DurationRequestRow | None:
    """Decide about a request; None if it is no longer in the state `before`."""
    row = await connection.fetchrow(q("decide_duration_request"), request_id, tenant, before, state, by, note)
    return None if row is None else _row(row)


async def approved_duration(connection: Connection, *, tenant: int, job: str, queue: str) -> float | None:
    """Seconds that are approved for a job in a queue."""
    seconds: float | None = await connection.fetchval(q("approved_duration"), tenant, job, queue)
    return seconds


def _row(row: Any) -> DurationRequestRow:
    return DurationRequestRow(**dict(row))
