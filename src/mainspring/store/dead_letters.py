"""Dead letters: executions that failed or were lost for good, and what people do about them."""

from __future__ import annotations

from mainspring.store.db import Connection
from mainspring.store.queries import q


async def count_open(connection: Connection, *, tenant: int) -> int:
    """How many wait for a person."""
    return int(await connection.fetchval(q("count_open"), tenant))
