"""Queues as people watch them: how much flows."""

from __future__ import annotations

from uuid import UUID

from mainspring.store import queues
from mainspring.store.db import Database, database_now_ms
from mainspring.store.queues import Flow

FLOW_S = 300.0
DUE_S = 600.0
"""Rates are of the last five minutes, of what was due in the last ten: a bounded look, whatever history holds."""
MOST_SEEN = 3_000


async def flow(database: Database, *, tenant: int) -> dict[str, Flow]:
    """Executions a minute into and out of each queue."""
    async with database.connection() as connection:
        since_ms = int(await database_now_ms(connection)) - int(DUE_S * 1000)
        since = UUID(int=since_ms << 80)
        return await queues.queue_flow(connection, tenant=tenant, since=since, most=MOST_SEEN, seconds=FLOW_S)
