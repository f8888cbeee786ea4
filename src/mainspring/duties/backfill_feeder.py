"""Feeds backfills: creates their executions in order, up to the concurrency of each. A duty of the leading scheduler.

One transaction reads the next instants, creates executions for the wanted ones and moves the cursor past all of them.
So a crash neither loses nor repeats an instant. The lock on the backfill's row orders two processes that feed at once.
"""

from __future__ import annotations

from uuid import UUID

import structlog

from mainspring.domain.schedule.backfill import wanted
from mainspring.domain.schedule.budget import REQUEST_STEPS, TooCostly, steps
from mainspring.store import backfills
from mainspring.store.backfills import LockedBackfill
from mainspring.store.db import Connection, Database

log = structlog.get_logger()

INSTANTS_PER_TRANSACTION = 500
MAX_OPEN_BACKFILLS = 1000


async def feed_all(database: Database) -> int:
    """Feed every running backfill; return how many there are."""
    async with database.connection() as connection:
        running = await backfills.open_backfills(connection, limit=MAX_OPEN_BACKFILLS)
    for backfill_id in running:
        try:
            while await feed(database, backfill_id):
                pass
        except Exception as error:  # a failing backfill must not starve the others
            log.warning("backfill.feed_failed", backfill=str(backfill_id), error=repr(error))
    return len(running)


async def feed(database: Database, backfill_id: UUID) -> bool:
    """Feed a backfill in one transaction; return whether more instants can be read at once."""
    async with database.transaction() as connection:
        backfill = await backfills.lock_backfill(connection, backfill_id=backfill_id)
        if backfill is None:
            return False
        if backfill.job_deleted:
            await backfills.end_backfill(connection, backfill_id=backfill_id, state="cancelled")
            return False
        free = backfill.concurrency - await backfills.backfill_live(connection, backfill_id=backfill_id)
        if free <= 0:
            return False
        try:
            with steps(REQUEST_STEPS):
                instants = backfill.range.following(backfill.cursor_ms, backfill.order, INSTANTS_PER_TRANSACTION)
        except TooCostly as error:
            log.warning("backfill.too_costly", backfill=str(backfill_id), error=str(error))
            await backfills.end_backfill(connection, backfill_id=backfill_id, state="cancelled")
            return False
        if not instants:
            await backfills.end_backfill(connection, backfill_id=backfill_id, state="finished")
            return False
        return await _create(connection, backfill, instants, free)


async def _create(connection: Connection, backfill: LockedBackfill, instants: list[int], free: int) -> bool:
    outcomes = await backfills.instant_outcomes(
        connection, tenant=backfill.tenant, job_id=backfill.job_id, instants=instants
    )
    chosen = wanted(instants, outcomes, backfill.reprocess)[:free]
    # With all slots taken, the cursor stops at the last execution created: later instants are read again.
    decided = instants if len(chosen) < free else instants[: instants.index(chosen[-1]) + 1]
    if chosen:
        await backfills.insert_backfill_executions(connection, backfill=backfill, fires=chosen)
    await backfills.move_backfill(
        connection,
        backfill_id=backfill.backfill_id,
        was_ms=backfill.cursor_ms,
        to_ms=decided[-1],
        made=len(chosen),
        left_out=len(decided) - len(chosen),
    )
    return len(chosen) < free
