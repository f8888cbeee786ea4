"""Samples of the depth of queues: one per minute, kept for a day, per tenant."""

from __future__ import annotations

import pytest

from mainspring.store.db import Database, database_now_ms
from mainspring.store.queue_samples import MAX_QUEUES, queue_depth_samples, write_queue_samples
from mainspring.views.queue_history import HOURS, STEP_S, history_of

pytestmark = pytest.mark.anyio

MINUTE_MS = 60_000


@pytest.fixture(autouse=True)
async def no_samples(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("DELETE FROM queue_sample_times")


async def test_samples_are_kept_by_minute_and_tenant_and_deleted_after_a_day(database: Database) -> None:
    async with database.connection() as connection:
        other = await connection.fetchval("INSERT INTO tenants (name) VALUES ('other') RETURNING tenant_id")
        now_ms = int(await database_now_ms(connection)) // MINUTE_MS * MINUTE_MS
        await write_queue_samples(connection, now_ms=now_ms - 1500 * MINUTE_MS, depths=[(1, "short", 9)])
        await write_queue_samples(connection, now_ms=now_ms - 10 * MINUTE_MS, depths=[(1, "short", 5), (other, "x", 3)])
        # The sample of a minute is not written twice, also not by another leader.
        await write_queue_samples(connection, now_ms=now_ms - 10 * MINUTE_MS + 30_000, depths=[(1, "short", 6)])
        await write_queue_samples(connection, now_ms=now_ms - MINUTE_MS, depths=[(1, "empty", 0)])
        assert await connection.fetchval("SELECT count(*) FROM queue_sample_times") == 2
        mine = await queue_depth_samples(connection, tenant=1, last_s=3600.0, step_s=60.0, most=5)
        theirs = await queue_depth_samples(connection, tenant=other, last_s=3600.0, step_s=60.0, most=5)
    assert [(s.queue, s.depth) for s in mine if s.queue is not None] == [("short", 5)]
    assert [(s.queue, s.depth) for s in theirs if s.queue is not None] == [("x", 3)]
    assert sum(s.queue is None for s in mine) == 2


async def test_only_the_deepest_queues_are_kept_and_returned(database: Database) -> None:
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        depths = [(1, f"q{n}", n) for n in range(1, MAX_QUEUES + 50)]
        await write_queue_samples(connection, now_ms=now_ms, depths=depths)
        assert await connection.fetchval("SELECT count(*) FROM queue_samples") == MAX_QUEUES
        found = await queue_depth_samples(connection, tenant=1, last_s=3600.0, step_s=60.0, most=2)
    assert {s.queue for s in found} == {None, f"q{MAX_QUEUES + 49}", f"q{MAX_QUEUES + 48}"}


async def test_intervals_without_a_sample_are_unknown_and_others_empty(database: Database) -> None:
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        await write_queue_samples(connection, now_ms=now_ms - 2 * STEP_S * 1000, depths=[(1, "short", 4)])
        await write_queue_samples(connection, now_ms=now_ms, depths=[])
        samples = await queue_depth_samples(connection, tenant=1, last_s=HOURS * 3600.0, step_s=float(STEP_S), most=5)
    found = history_of(samples, now_ms=now_ms).depths["short"]
    assert len(found) == HOURS * 3600 // STEP_S
    assert found[-3:] == [4, None, 0] and set(found[:-3]) == {None}
