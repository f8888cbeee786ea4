"""A rehearsal: connections are opened, and what is asked most is planned, before somebody waits for it.

A new connection costs some 50 ms of both processes: to open it, to look up types, to plan what comes first. When a
moment's delay had several opened at once, that made the next delay; a hundred submissions felt it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from uuid import UUID

import structlog

from mainspring.domain.settlement import AttemptResult, Settled
from mainspring.store import claims, executions, jobs, results
from mainspring.store.db import Connection, Database

log = structlog.get_logger()

CONNECTIONS, HOT = 8, 4
PLANS = 3
"""PostgreSQL makes five plans before it keeps one, and a look for an execution that is not there is two."""
NOBODY = 0
NOTHING = UUID(int=0)


async def rehearse(database: Database) -> None:
    """Asks for what is not there: nothing changes."""
    try:
        async with AsyncExitStack() as stack:
            for _ in range(CONNECTIONS):
                await _ask(await stack.enter_async_context(database.connection()))
        async with AsyncExitStack() as stack:
            for _ in range(HOT):
                await _claim_and_settle(await stack.enter_async_context(database.hot()))
    except Exception as error:
        log.debug("no rehearsal", error=repr(error))


async def _ask(connection: Connection) -> None:
    await jobs.job_by_name(connection, tenant=NOBODY, name="")
    await executions.insert_one(
        connection,
        tenant=NOBODY,
        job_id=NOTHING,
        trigger_key="",
        params=None,
        created_by="",
        fire_at=None,
        session_id=None,
        line_id=None,
    )
    for _ in range(PLANS):
        await executions.execution_by_id(connection, tenant=NOBODY, execution_id=NOTHING)


async def _claim_and_settle(connection: Connection) -> None:
    await claims.claim(
        connection, tenant=NOBODY, line_id=0, after=claims.LINE_START, sessions=[NOTHING], slot_order=[1]
    )
    await results.settle_succeeded(
        connection, ended=[AttemptResult(NOTHING, 1, NOTHING, "succeeded", 0)], settled=Settled()
    )
