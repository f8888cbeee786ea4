"""Decides waiting fires of tenants with blackouts when they are due, by the blackouts in force then.

These are one-time jobs, fires that wait for the end of a blackout (which may have been extended), and fires delayed by
jitter. The blackouts are read in the transaction that decides, so they can't be stale.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.store import blackouts, overlaps
from mainspring.store.blackouts import GatedFire, GateVerdict
from mainspring.store.db import Database

BATCH = 500


async def decide_waiting_fires(database: Database, *, shards: Sequence[int]) -> None:
    """Queue, delay or skip every waiting fire that is due."""
    while True:
        async with database.connection() as connection, connection.transaction():
            due = await blackouts.lock_gated(connection, shards=shards, limit=BATCH)
            if not due:
                return
            known = Blackouts(await blackouts.open_blackouts(connection, tenant=None))
            freed = await blackouts.apply_gate(connection, verdicts=[verdict(known, fire) for fire in due])
        if freed:
            # In a separate transaction: lock order is the job's row before its executions.
            async with database.transaction() as connection:
                await overlaps.release_blocked(connection, job_ids=freed)
        if len(due) < BATCH:
            return


def verdict(known: Blackouts, fire: GatedFire) -> GateVerdict:
    """Apply the misfire policy as of the end of the blackout in force."""
    until = known.until(fire.scope, fire.now_ms)
    too_old = until is not None and fire.fire_ms < until - fire.misfire_s * 1000
    return GateVerdict(fire.execution_id, until, until is not None and (fire.misfire == "skip" or too_old))
