"""Creates partitions ahead of time; deletes expired partitions, attempts and idempotency keys."""

from __future__ import annotations

import contextlib
from uuid import UUID

import asyncpg

from mainspring.store.db import Connection, database_now_ms
from mainspring.store.queries import q


async def make_partitions(connection: Connection, *, days: int) -> list[str]:
    """Create the daily partitions of the next days; return their names."""
    return [r[0] for r in await connection.fetch(q("make_partitions"), days)]


async def drop_partitions(connection: Connection, parent: str, *, after_s: float) -> list[str]:
    """Drop the daily partitions that ended `after_s` ago, without reading or writing a row; return their names."""
    dropped: list[str] = []
    with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):  # the next round drops it
        while (name := await connection.fetchval(q("drop_partition"), parent, after_s)) is not None:
            dropped.append(name)
    return dropped


async def shorter_retention(connection: Connection, *, than_s: float) -> list[int]:
    """Tenants that keep their history for a shorter time."""
    return [r["tenant_id"] for r in await connection.fetch(q("shorter_retention"), than_s)]


async def forget_history(connection: Connection, *, tenant: int, limit: int) -> int | None:
    """Delete expired executions of a tenant among the next `limit` of all tenants; None if no day has expired."""
    found: int | None = await connection.fetchval(q("forget_history"), tenant, limit)
    return found


async def forget_attempts(connection: Connection, *, after_s: float, limit: int) -> int:
    """Delete old attempts of ended executions; return how many. Ids begin with the instant, so the oldest go first."""
    now_ms = int(await database_now_ms(connection))
    before = UUID(int=max(0, now_ms - int(after_s * 1000)) << 80)
    return len(await connection.fetch(q("forget_attempts"), before, after_s, limit))


async def forget_idempotency_keys(connection: Connection) -> None:
    """Delete idempotency keys older than a day."""
    await connection.execute(q("forget_idempotency_keys"))


async def forget_request_keys(connection: Connection) -> None:
    """Delete the responses of requests with an `Idempotency-Key` older than a day."""
    await connection.execute(q("forget_request_keys"))
