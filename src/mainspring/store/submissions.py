"""Executions that clients submitted in their own transactions, until the leader moves them to `executions`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class TransactionalSubmission:
    """A row that function `submit` wrote. `params` is JSON text; `at` is what the client asked for."""

    execution_id: UUID
    tenant: int
    job_id: UUID
    job: str
    version: int
    key: str | None
    at: datetime | None
    due_at: datetime
    params: str | None
    created_by: str


async def take_submissions(connection: Connection, *, limit: int) -> list[TransactionalSubmission]:
    """Delete and return the oldest committed submissions, of all tenants. Needs a transaction."""
    rows = await connection.fetch(q("take_submissions"), limit)
    found = [
        TransactionalSubmission(
            execution_id=row["execution_id"],
            tenant=row["tenant_id"],
            job_id=row["job_id"],
            job=row["job_name"],
            version=row["version"],
            key=row["key"],
            at=row["at"],
            due_at=row["due_at"],
            params=row["params"],
            created_by=row["created_by"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: one.execution_id)
