"""What keeps the database in shape, and the counts people look at."""

from __future__ import annotations

from datetime import datetime

from mainspring.store.db import Connection
from mainspring.store.queries import q


async def make_partitions(connection: Connection, *, days: int) -> list[str]:
    return [r[0] for r in await connection.fetch(q("make_partitions"), days)]


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
