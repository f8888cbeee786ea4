"""Feeding backfills: at most so many live executions of each at a time, in its order.

One transaction looks at the next instants, makes executions of those that are wanted and moves the cursor past all of
them. A crash before its commit changes nothing, one after it has lost nothing; two who feed at once are ordered by the
backfill's row.
"""

from __future__ import annotations

from uuid import UUID

import structlog

from mainspring.domain.schedule.backfill import wanted
from mainspring.store import backfills
from mainspring.store.backfills import LockedBackfill
from mainspring.store.db import Connection, Database

log = structlog.get_logger()

LOOKED_AT = 500
"""So many instants are looked at in one transaction."""
MOST_OPEN = 1000


async def feed_all(database: Database) -> int:
    """Feeds every running backfill; how many there still are."""
    async with database.connection() as connection:
        running = await backfills.open_backfills(connection, limit=MOST_OPEN)
    for backfill_id in running:
        try:
            while await feed(database, backfill_id):
                pass
        except Exception as error:  # one that can't be fed must not starve the others
            log.warning("could not feed a backfill", backfill=str(backfill_id), error=repr(error))
    return len(running)


async def feed(database: Database, backfill_id: UUID) -> bool:
    """One transaction; whether there may be more to do at once."""
    async with database.transaction() as connection:
        held = await backfills.hold_backfill(connection, backfill_id=backfill_id)
        if held is None:
            return False
        if held.job_deleted:
            await backfills.end_backfill(connection, backfill_id=backfill_id, state="cancelled")
            return False
        free = held.concurrency - await backfills.backfill_live(connection, backfill_id=backfill_id)
        if free <= 0:
            return False
        ahead = held.range.following(held.cursor_ms, held.order, LOOKED_AT)
        if not ahead:
            await backfills.end_backfill(connection, backfill_id=backfill_id, state="finished")
            return False
        return await _make(connection, held, ahead, free)


async def _make(connection: Connection, held: LockedBackfill, ahead: list[int], free: int) -> bool:
    outcomes = await backfills.instant_outcomes(connection, tenant=held.tenant, job_id=held.job_id, instants=ahead)
    chosen = wanted(ahead, outcomes, held.reprocess)[:free]
    # The cursor stops at the last one made: what comes after it is looked at again when there is room.
    decided = ahead if len(chosen) < free else ahead[: ahead.index(chosen[-1]) + 1]
    if chosen:
        await backfills.insert_backfill_executions(connection, feeding=held, fires=chosen)
    await backfills.move_backfill(
        connection,
        backfill_id=held.backfill_id,
        was_ms=held.cursor_ms,
        to_ms=decided[-1],
        made=len(chosen),
        left_out=len(decided) - len(chosen),
    )
    return len(chosen) < free
