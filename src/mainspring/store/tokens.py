"""API tokens and their schedule quotas. Only digests of tokens are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q


@dataclass(frozen=True, slots=True)
class Token:
    token_id: UUID
    tenant: int
    name: str
    scopes: frozenset[str]
    tenant_name: str = ""
    schedule_quota: int | None = None


async def insert_token(
    connection: Connection,
    *,
    tenant: int,
    token_id: UUID,
    name: str,
    digest: bytes,
    scopes: Sequence[str],
    expires_at: datetime | None = None,
    schedule_quota: int | None = None,
) -> None:
    await connection.execute(
        q("insert_token"), token_id, tenant, name, digest, list(scopes), expires_at, schedule_quota
    )


async def token_by_digest(connection: Connection, *, digest: bytes) -> Token | None:
    """The valid token with this digest; it determines the tenant."""
    row = await connection.fetchrow(q("token_by_digest"), digest)
    return None if row is None else _token(row)


async def token_by_id(connection: Connection, *, token_id: UUID) -> Token | None:
    row = await connection.fetchrow(q("token_by_id"), token_id)
    return None if row is None else _token(row)


def _token(row: Any) -> Token:
    return Token(
        row["token_id"], row["tenant_id"], row["name"], frozenset(row["scopes"]), row["tenant"], row["schedule_quota"]
    )


@dataclass(frozen=True, slots=True)
class ScheduleGrant:
    """A number of schedules that may be created until the token's hour ends at `reset_at`."""

    granted: int
    reset_at: datetime
    left_s: float


async def begin_grants(connection: Connection, *, tenant: int, token_id: UUID) -> None:
    await connection.execute(q("begin_grants"), token_id, tenant)


async def grant_schedules(connection: Connection, *, tenant: int, token_id: UUID, most: int) -> ScheduleGrant:
    """Grant a part of what is left of `most` in the hour; 0 if nothing is left."""
    row = await connection.fetchrow(q("grant_schedules"), token_id, tenant, most)
    assert row is not None, "begin_grants comes first"
    return ScheduleGrant(row["granted"], row["reset_at"], row["left_s"])


async def has_tokens(connection: Connection) -> bool:
    return bool(await connection.fetchval(q("has_tokens")))


async def revoke_tokens_named(connection: Connection, *, tenant: int, name: str) -> None:
    await connection.execute(q("revoke_tokens_named"), tenant, name)


async def server_key(connection: Connection, *, name: str) -> bytes:
    key = await connection.fetchval(q("server_key"), name)
    return bytes(key)


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A token as listed, without its secret."""

    token_id: UUID
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    expired: bool


async def list_tokens(connection: Connection, *, tenant: int, limit: int) -> list[TokenLine]:
    return [TokenLine(*r.values()) for r in await connection.fetch(q("list_tokens"), tenant, limit)]


async def revoke_token(connection: Connection, *, tenant: int, token_id: UUID) -> str | None:
    """Revoke a token; return its name, or None if there is none to revoke."""
    name: str | None = await connection.fetchval(q("revoke_token"), token_id, tenant)
    return name
