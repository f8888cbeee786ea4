"""The hold of the cluster after a restore: nothing fires and no worker registers until an operator ends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q

Gap = Literal["skip", "run"]
"""Do not execute what came due during the gap; or execute it, by each job's misfire policy."""


@dataclass(frozen=True, slots=True)
class Hold:
    hold_id: int
    held_at: datetime
    backup_at: datetime

    def __str__(self) -> str:
        return (
            f"firing is held since {self.held_at:%Y-%m-%d %H:%M:%S} UTC, after a restore of the backup of"
            f" {self.backup_at:%Y-%m-%d %H:%M:%S} UTC; decide what the gap means: mainspring db resume"
        )


@dataclass(frozen=True, slots=True)
class GapSummary:
    """What the gap contains, in counts."""

    decided_upto: datetime
    executions: int
    schedules: int
    backfills: int
    triggers: int


async def open_hold(connection: Connection) -> Hold | None:
    row = await connection.fetchrow(q("open_hold"))
    return None if row is None else Hold(*row.values())


async def begin_hold(connection: Connection, *, backup_at: datetime) -> None:
    """Hold firing from now on; ends another hold. Needs the owner of the schema."""
    await connection.execute(q("begin_hold"), backup_at)


async def recovered_upto(connection: Connection) -> datetime | None:
    """When the last commit was made that a recovery of this server has replayed; None if it has not recovered."""
    found: datetime | None = await connection.fetchval(q("recovered_upto"))
    return found


async def end_hold(connection: Connection, *, hold_id: int, by: str, gap: Gap) -> bool:
    """End a hold; False if it has ended already."""
    return bool(await connection.fetch(q("end_hold"), hold_id, by, gap))


async def gap_executions(connection: Connection, *, held_at: datetime, limit: int) -> list[tuple[UUID, int]]:
    """Return executions that may have been executed since the backup, with their tenants."""
    return [(r["execution_id"], r["tenant_id"]) for r in await connection.fetch(q("gap_executions"), held_at, limit)]


async def gap_backfills(connection: Connection, *, held_at: datetime) -> list[tuple[UUID, int]]:
    """Return running backfills that may have created executions since the backup, with their tenants."""
    return [(r["backfill_id"], r["tenant_id"]) for r in await connection.fetch(q("gap_backfills"), held_at)]


async def gap_triggers(connection: Connection, *, held_at: datetime) -> list[tuple[str, int]]:
    """Return names of triggers that may have read files or messages since the backup, with their tenants."""
    return [(r["name"], r["tenant_id"]) for r in await connection.fetch(q("gap_triggers"), held_at)]


async def gap_summary(connection: Connection, *, held_at: datetime) -> GapSummary:
    row = await connection.fetchrow(q("gap_summary"), held_at)
    assert row is not None
    return GapSummary(*row.values())
