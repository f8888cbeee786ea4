"""What keeps the database in shape, and the counts people look at."""

from __future__ import annotations

import contextlib
from datetime import datetime
from uuid import UUID

import asyncpg

from mainspring.store.db import Connection, database_now_ms
from mainspring.store.queries import q


async def make_partitions(connection: Connection, *, days: int) -> list[str]:
    return [r[0] for r in await connection.fetch(q("make_partitions"), days)]


async def drop_partitions(connection: Connection, parent: str, *, after_s: float) -> list[str]:
    """Drops the days that ended so long ago, and with them all that is in them: no row is read or written for that."""
    dropped: list[str] = []
    with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):  # there is a next time
        while (name := await connection.fetchval(q("drop_partition"), parent, after_s)) is not None:
            dropped.append(name)
    return dropped


async def forget_attempts(connection: Connection, *, after_s: float, limit: int) -> int:
    """Of executions that were kept long enough; ids begin with the instant, so the oldest come first."""
    now_ms = int(await database_now_ms(connection))
    before = UUID(int=max(0, now_ms - int(after_s * 1000)) << 80)
    return len(await connection.fetch(q("forget_attempts"), before, after_s, limit))


async def forget_idempotency_keys(connection: Connection) -> None:
    await connection.execute(q("forget_idempotency_keys"))


async def live_counts(connection: Connection, *, tenant: int) -> dict[str, int]:
    return {r["state"]: r["n"] for r in await connection.fetch(q("live_counts"), tenant)}


async def trouble_count(connection: Connection, *, tenant: int, since: datetime) -> int:
    return int(await connection.fetchval(q("trouble_count"), tenant, since))


async def job_counts(connection: Connection, *, tenant: int) -> tuple[int, int]:
    """All jobs, and those that are paused."""
    row = await connection.fetchrow(q("job_counts"), tenant)
    assert row is not None
    return row["jobs"], row["paused"]
