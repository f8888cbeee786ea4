"""Waiting fires of tenants that have blackouts: each is looked at when it is due, by what holds then.

One-time jobs come this way, fires that wait for the end of a blackout (which may have become longer), and fires
delayed by jitter. The blackouts are read in the transaction that decides, so no knowledge can be stale.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.store import blackouts, overlaps
from mainspring.store.blackouts import Gated, Verdict
from mainspring.store.db import Database

BATCH = 500


async def let_through(database: Database, *, shards: Sequence[int]) -> None:
    """Queues, holds or skips every waiting fire that is due."""
    while True:
        async with database.connection() as connection, connection.transaction():
            due = await blackouts.lock_gated(connection, shards=shards, limit=BATCH)
            if not due:
                return
            known = Blackouts(await blackouts.open_blackouts(connection, tenant=None))
            freed = await blackouts.pass_gate(connection, verdicts=[judge(known, fire) for fire in due])
        if freed:
            # In a transaction of its own: the job's row comes before its executions.
            async with database.transaction() as connection:
                await overlaps.release_blocked(connection, job_ids=freed)
        if len(due) < BATCH:
            return


def judge(known: Blackouts, fire: Gated) -> Verdict:
    """The misfire policy, measured at the end of the blackout that holds."""
    until = known.until(fire.scope, fire.now_ms)
    too_old = until is not None and fire.fire_ms < until - fire.misfire_s * 1000
    return Verdict(fire.execution_id, until, until is not None and (fire.misfire == "skip" or too_old))
