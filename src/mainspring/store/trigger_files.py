"""Watches of triggers of kind `files`, and the files that their looks have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.domain.watch import FileOutcome, KnownFile
from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.store.triggers import TriggerRow, trigger_row


@dataclass(frozen=True, slots=True)
class WatchRow:
    """A watch whose next look is due. `next_look_at` identifies the look: the first process that ends it counts."""

    trigger: TriggerRow
    tenant_name: str
    since_at: datetime
    first_pass: bool
    after_path: str | None
    next_look_at: datetime
    error: str | None


async def begin_watch(connection: Connection, *, tenant: int, trigger_id: UUID, moved: bool = False) -> None:
    """Begin or reset a watch; `moved`: it has another place or pattern than before."""
    await connection.execute(q("begin_watch"), trigger_id, tenant, moved)


async def forget_files(connection: Connection, *, tenant: int, trigger_id: UUID) -> None:
    await connection.execute(q("forget_files"), trigger_id, tenant)


async def due_watches(connection: Connection, *, limit: int) -> list[WatchRow]:
    """Watches of all tenants whose next look is due: a leader duty."""
    return [
        WatchRow(
            trigger_row(r, delivery=False),
            r["tenant_name"],
            r["watched_since"],
            r["first_pass"],
            r["after_path"],
            r["next_look_at"],
            r["error"],
        )
        for r in await connection.fetch(q("due_watches"), limit)
    ]


async def next_look_s(connection: Connection) -> float | None:
    """Return the seconds until the next look, over all tenants; None if nothing is watched."""
    found: float | None = await connection.fetchval(q("next_look_s"))
    return found


async def known_files(
    connection: Connection, *, tenant: int, trigger_id: UUID, paths: Sequence[str]
) -> dict[str, KnownFile]:
    rows = await connection.fetch(q("known_files"), trigger_id, tenant, list(paths))
    return {r["path"]: KnownFile(r["version"], r["outcome"], r["decided_for"], r["seen_at"]) for r in rows}


async def remembers_too_many(connection: Connection, *, tenant: int, trigger_id: UUID, most: int) -> bool:
    return bool(await connection.fetchval(q("remembers_too_many"), trigger_id, tenant, most))


async def record_files(
    connection: Connection,
    *,
    tenant: int,
    trigger_id: UUID,
    trigger_version: int,
    found: Sequence[tuple[str, str, FileOutcome]],
) -> None:
    """Record paths with their new versions, unless the trigger was edited."""
    columns: Any = [list(column) for column in zip(*found, strict=True)]
    await connection.execute(q("record_files"), trigger_id, tenant, *columns, trigger_version)


async def renew_files(connection: Connection, *, tenant: int, trigger_id: UUID, paths: Sequence[str]) -> None:
    await connection.execute(q("renew_files"), trigger_id, tenant, list(paths))


async def lock_file(
    connection: Connection, *, tenant: int, trigger_id: UUID, path: str, version: str, trigger_version: int
) -> bool:
    """Hold the trigger, and lock a version of a file that is still to be decided. Needs a transaction.

    False: the file is decided, or the trigger was edited, paused or deleted.
    """
    if not await hold_trigger(connection, tenant=tenant, trigger_id=trigger_id, trigger_version=trigger_version):
        return False
    row = await connection.fetchrow(q("lock_file"), trigger_id, tenant, path, version, trigger_version)
    return row is not None


async def hold_trigger(connection: Connection, *, tenant: int, trigger_id: UUID, trigger_version: int) -> bool:
    """Keep a trigger as it is until the end of the transaction; False: it was edited, paused or deleted."""
    return await connection.fetchrow(q("hold_trigger"), trigger_id, tenant, trigger_version) is not None


async def decide_file(
    connection: Connection, *, tenant: int, trigger_id: UUID, path: str, outcome: str, trigger_version: int
) -> None:
    await connection.execute(q("decide_file"), trigger_id, tenant, path, outcome, trigger_version)


async def end_look(
    connection: Connection, watch: WatchRow, *, wait_s: float, after: str | None, problem: str | None, complete: bool
) -> bool:
    """Record a look; False: another process has looked since, or the trigger was edited."""
    row = await connection.fetchrow(
        q("end_look"),
        watch.trigger.trigger_id,
        watch.trigger.tenant,
        watch.next_look_at,
        wait_s,
        after,
        problem,
        complete,
    )
    return row is not None


async def fail_look(connection: Connection, watch: WatchRow, *, wait_s: float, problem: str) -> bool:
    """Record that a place could not be read; False: another process has looked since, or the trigger was edited."""
    trigger = watch.trigger
    row = await connection.fetchrow(
        q("fail_look"), trigger.trigger_id, trigger.tenant, watch.next_look_at, wait_s, problem
    )
    return row is not None


async def forget_gone_files(connection: Connection, *, limit: int) -> None:
    """Delete files that are gone for a week, of all tenants."""
    await connection.execute(q("forget_gone_files"), limit)
