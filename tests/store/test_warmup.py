"""The warm-up opens connections and plans statements, and changes nothing."""

from __future__ import annotations

import pytest

from mainspring.store.db import Database
from mainspring.store.warmup import CONNECTIONS, HOT_CONNECTIONS, warm_up

pytestmark = pytest.mark.anyio

COUNTS = "SELECT (SELECT count(*) FROM executions) + (SELECT count(*) FROM history) + (SELECT count(*) FROM attempts)"


async def test_connections_are_open_and_nothing_is_written(fresh: Database) -> None:
    async with fresh.connection() as connection:
        before = await connection.fetchval(COUNTS)
    await warm_up(fresh)
    async with fresh.connection() as connection:
        assert await connection.fetchval(COUNTS) == before == 0
        open_ones = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state IN ('idle', 'active')"
        )
    assert open_ones >= CONNECTIONS + HOT_CONNECTIONS


async def test_a_database_that_is_away_is_nobodys_trouble() -> None:
    async with Database("postgresql://nobody@127.0.0.1:1/none") as database:
        await warm_up(database)
