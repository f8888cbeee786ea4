"""Append-only tables refuse TRUNCATE, in every partition; retention and owners have other ways."""

from __future__ import annotations

import sys

import asyncpg
import pytest

from mainspring.store import retention
from mainspring.store.db import Database
from tests.support.empty_tables import emptying
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

APPEND_ONLY = (
    "audit", "attempts", "history", "log_chunks", "job_versions", "workflow_versions", "calendar_versions",
)  # fmt: skip
PARTITIONS = """
SELECT inhrelid::regclass::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
WHERE c.relname IN ('history', 'log_chunks') AND c.relkind = 'p'
"""


async def partitions(database: Database) -> list[str]:
    async with database.connection() as connection:
        return [r["name"] for r in await connection.fetch(PARTITIONS)]


async def refused(database: Database, statement: str) -> None:
    async with database.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="never changed"):
            await connection.execute(statement)


@pytest.mark.parametrize("table", APPEND_ONLY)
async def test_an_append_only_table_is_not_truncated(fresh: Database, table: str) -> None:
    await refused(fresh, f"TRUNCATE {table} CASCADE")


async def test_nor_through_a_table_that_it_refers_to(fresh: Database) -> None:
    await refused(fresh, "TRUNCATE tenants CASCADE")


async def test_nor_is_a_partition_neither_an_old_nor_a_new_one(fresh: Database) -> None:
    before = await partitions(fresh)
    async with fresh.connection() as connection:
        await retention.make_partitions(connection, days=30)
    after = await partitions(fresh)
    assert len(after) > len(before) > 2
    for part in after:
        await refused(fresh, f"TRUNCATE {part}")


async def test_retention_drops_partitions_all_the_same(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute("CREATE TABLE history_20200101 (LIKE history INCLUDING ALL)")
        await connection.execute(
            "CREATE TRIGGER never_truncated BEFORE TRUNCATE ON history_20200101 EXECUTE FUNCTION refuse_change()"
        )
        await connection.execute(
            "ALTER TABLE history ATTACH PARTITION history_20200101 FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')"
        )
        assert await retention.drop_partitions(connection, "history", after_s=86_400.0) == ["history_20200101"]


async def test_tests_and_benchmarks_empty_their_own_databases(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from harness import EMPTY  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "harness")  # another test may import it from elsewhere
    for statement in (EMPTY, emptying("history", "audit")):
        async with fresh.connection() as connection:
            await connection.execute("INSERT INTO audit (tenant_id, actor, action, subject) VALUES (1, 'a', 'b', 'c')")
            await connection.execute(statement)
    async with fresh.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM audit") == 0
    await refused(fresh, "TRUNCATE history")
