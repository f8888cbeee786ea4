"""Reports of a tenant with many queues hold the event loop for less than 100 ms of CPU time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import pytest

from mainspring.domain.costs import NO_PRICES
from mainspring.store import rollups
from mainspring.store.db import Database
from mainspring.views.costs import costs
from mainspring.views.forecast import forecast

pytestmark = pytest.mark.anyio

QUEUES, HOURS = 200, 160
TICK_S = 0.002
LONGEST_S = 0.1
FILL = """
INSERT INTO queue_rollups (tenant_id, at, queue, succeeded, failed, cancelled, skipped, duration_ms, wait_ms, buckets,
                           counts)
SELECT 1, date_bin('1 hour', db_now(), '2000-01-01Z') - make_interval(hours => hour), 'queue-' || queue, 20, 1, 0, 0,
       2000, 0, (SELECT array_agg(n::smallint) FROM generate_series(1, 20) AS n), array_fill(1::bigint, '{20}')
FROM generate_series(1, $1::int) AS queue, generate_series(0, $2::int - 1) AS hour"""


async def longest_hold(work: Awaitable[object]) -> float:
    """The most CPU time that the loop's thread spends between two turns of another task."""
    longest = 0.0
    done = asyncio.ensure_future(work)
    before = time.thread_time()
    while not done.done():
        await asyncio.wait([done], timeout=TICK_S)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await done
    return longest


async def test_reports_leave_the_event_loop_to_others(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute(FILL, QUEUES, HOURS)
        await connection.execute("ANALYZE queue_rollups")
    assert await longest_hold(costs(fresh, NO_PRICES, tenant=1, every_tenant=True, days=30, jobs=50)) < LONGEST_S
    assert await longest_hold(forecast(fresh, tenant=1, days=14)) < LONGEST_S


async def test_hours_of_a_queue_are_added_up_with_their_durations(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await connection.execute(FILL, 3, 5)
        since = await connection.fetchval("SELECT db_now() - interval '1 day'")
        found = await rollups.queue_totals(connection, tenant=1, since=since, most=2)
        assert await rollups.queue_totals(connection, tenant=2, since=since, most=2) == {}
    assert sorted(found) == ["queue-1", "queue-2"]
    totals = found["queue-1"]
    assert (totals.totals.succeeded, totals.totals.failed, totals.totals.duration_ms) == (100, 5, 10_000)
    assert totals.counts == dict.fromkeys(range(1, 21), 5)
