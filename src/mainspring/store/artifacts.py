"""Metadata of artifacts; their content is in the artifact store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    name: str
    attempt: int
    key: UUID
    size: int
    sha256: bytes
    content_type: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ArtifactWrite:
    """`held`: the session runs the attempt. `written`: there was room. `earlier`: key of the replaced artifact."""

    held: bool
    written: bool
    earlier: UUID | None


async def holds_attempt(connection: Connection, *, execution_id: UUID, attempt: int, session_id: UUID) -> bool:
    """Whether the session runs this attempt, of any tenant: a shared session serves all."""
    return bool(await connection.fetchval(q("holds_attempt"), execution_id, attempt, session_id))


async def insert_artifact(
    connection: Connection,
    *,
    execution_id: UUID,
    attempt: int,
    session_id: UUID,
    name: str,
    key: UUID,
    size: int,
    sha256: bytes,
    content_type: str,
    kept_s: float,
    most_files: int,
    most_bytes: int,
) -> ArtifactWrite:
    """Insert or replace an artifact, with the tenant of its execution."""
    row = await connection.fetchrow(
        q("insert_artifact"),
        execution_id,
        attempt,
        session_id,
        name,
        key,
        size,
        sha256,
        content_type,
        kept_s,
        most_files,
        most_bytes,
    )
    assert row is not None
    return ArtifactWrite(*row.values())


async def list_artifacts(connection: Connection, *, tenant: int, execution_id: UUID) -> list[ArtifactRow]:
    return [ArtifactRow(*r.values()) for r in await connection.fetch(q("list_artifacts"), execution_id, tenant)]


async def find_artifact_in(
    connection: Connection,
    *,
    execution_id: UUID,
    attempt: int,
    session_id: UUID,
    name: str,
    source: UUID | None,
    step: int | None,
    job: str | None,
    newest: int,
) -> tuple[bool, ArtifactRow | None]:
    """Whether the session runs the attempt, and the artifact, within the tenant of the attempt's execution."""
    row = await connection.fetchrow(
        q("find_artifact_in"), execution_id, attempt, session_id, name, source, step, job, newest
    )
    if row is None:
        return False, None
    _, *values = row.values()
    return True, None if row["key"] is None else ArtifactRow(*values)


async def expired_artifacts(connection: Connection, *, limit: int) -> list[UUID]:
    """Keys of expired artifacts, over all tenants."""
    return [r["key"] for r in await connection.fetch(q("expired_artifacts"), limit)]


async def delete_artifacts(connection: Connection, *, keys: Sequence[UUID]) -> None:
    """Over all tenants, like `expired_artifacts`."""
    await connection.execute(q("delete_artifacts"), keys)
