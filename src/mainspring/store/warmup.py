"""Warm-up: open connections and plan the most frequent statements before requests need them.

A new connection costs about 50 ms in both processes: opening it, reading types, planning its first statements. Without
a warm-up, a short delay opened several connections at once, which caused the next delay for about 100 submissions.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from uuid import UUID

import structlog

from mainspring.domain.settlement import AttemptResult, Settled
from mainspring.store import claims, executions, jobs, results
from mainspring.store.db import Connection, Database

log = structlog.get_logger()

CONNECTIONS, HOT_CONNECTIONS = 8, 6
REPEATED_READS = 3
"""PostgreSQL keeps a generic plan after five; reading a missing execution runs two statements."""
NO_TENANT = 0
FIRST_TENANT = 1
"""Connections are set to it, which is the right one where there is a single tenant."""
NO_ID = UUID(int=0)
NO_SUBMISSION = executions.SubmissionColumns(
    [""], [NO_TENANT], [NO_ID], [None], [""], [None], [None], [None], [None], [None], [None]
)
NO_KEYED_SUBMISSION = replace(NO_SUBMISSION, keys=[""], digests=[b""])


async def warm_up(database: Database) -> None:
    """Run the statements for ids that do not exist: nothing changes."""
    try:
        async with AsyncExitStack() as stack:
            for _ in range(CONNECTIONS):
                await _read(await stack.enter_async_context(database.of(FIRST_TENANT).connection()))
        async with AsyncExitStack() as stack:
            for _ in range(HOT_CONNECTIONS):
                await _submit_claim_and_settle(await stack.enter_async_context(database.hot()))
    except Exception as error:
        log.debug("warmup.failed", error=repr(error))


async def _read(connection: Connection) -> None:
    await jobs.job_by_name(connection, tenant=NO_TENANT, name="")
    for _ in range(REPEATED_READS):
        await executions.execution_by_id(connection, tenant=NO_TENANT, execution_id=NO_ID)


async def _submit_claim_and_settle(connection: Connection) -> None:
    await executions.submit(connection, NO_SUBMISSION)
    await executions.submit(connection, NO_KEYED_SUBMISSION)
    await claims.claim(
        connection, tenant=NO_TENANT, line_id=0, after=claims.LINE_START, sessions=[NO_ID], slot_order=[1]
    )
    await results.settle_succeeded(
        connection, ended=[AttemptResult(NO_ID, 1, NO_ID, "succeeded", 0)], settled=Settled()
    )
