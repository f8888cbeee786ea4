"""Hourly statistics: every execution is added up once, and nothing else than new history is read for it."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from mainspring.duties.rollups import Rollups
from mainspring.store import rollups, search
from mainspring.store.db import Connection, Database
from mainspring.store.queries import q

pytestmark = pytest.mark.anyio

INSERT = """
INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue, fire_at,
                     due_at, started_at, finished_at, duration_ms, reason)
SELECT execution_id(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), $1, gen_random_uuid()::text),
       $1, 1, 1, 5, 1, $2, 'fire', $5, at, at, at + interval '2 s', at + interval '3 s', $6,
       CASE WHEN $2 = 'skipped' THEN 'overlap' END
FROM (SELECT $3::timestamptz + n * interval '1 s' AS at FROM generate_series(1, $4::int) n) AS due"""


async def ended(
    connection: Connection,
    job: UUID,
    at: datetime,
    *,
    state: str = "succeeded",
    n: int = 10,
    queue: str = "short",
    ms: int = 1000,
) -> None:
    await connection.execute(INSERT, job, state, at, n, queue, ms)


async def start_at_hours_ago(connection: Connection, hours: int) -> datetime:
    """Let the rollups begin a full number of hours ago; return the instant."""
    at = await connection.fetchval(
        "SELECT date_bin('1 hour', db_now(), '2000-01-01Z') - make_interval(hours => $1)", hours
    )
    await rollups.restart_rollups(connection, at=at)
    for day in {(at + timedelta(hours=n)).date() for n in range(hours + 1)}:
        part = f"history_{day:%Y%m%d}"
        if await connection.fetchval("SELECT to_regclass($1)", part) is None:
            await connection.execute(
                f"CREATE TABLE {part} PARTITION OF history FOR VALUES FROM ('{day} 00:00+00')"
                f" TO ('{day + timedelta(days=1)} 00:00+00')"
            )
    return at  # type: ignore[no-any-return]


def leader(database: Database) -> Rollups:
    return Rollups(database, leads=lambda: True)


async def test_each_execution_is_added_up_once_by_job_and_queue(fresh: Database) -> None:
    one, other = uuid4(), uuid4()
    async with fresh.connection() as connection:
        at = await start_at_hours_ago(connection, 3)
        await ended(connection, one, at, n=100, ms=200)
        await ended(connection, one, at + timedelta(minutes=20), n=5, state="failed")
        await ended(connection, one, at + timedelta(hours=1), n=50, ms=5000)
        await ended(connection, other, at, n=7, queue="long", ms=90_000)
        await ended(connection, other, at, n=3, state="skipped", queue="long", ms=0)
    # Two leaders at once, and again: each interval is added by one of them.
    await asyncio.gather(leader(fresh).run_once(), leader(fresh).run_once())
    await leader(fresh).run_once()
    async with fresh.connection() as connection:
        hours = await connection.fetch("SELECT * FROM queue_rollups WHERE tenant_id = 1")
        totals = await rollups.queue_totals(connection, tenant=1, since=at, most=10)
        jobs = await connection.fetch("SELECT * FROM job_rollups ORDER BY at, queue")
    found = {(h["queue"], (h["at"] - at) // timedelta(hours=1)): h for h in hours}
    short, ms = found["short", 0], 100 * 200 + 5 * 1000
    assert (short["succeeded"], short["failed"], short["duration_ms"], short["wait_ms"]) == (100, 5, ms, 105 * 2000)
    assert found["short", 1]["succeeded"] == 50
    assert (found["long", 0]["succeeded"], found["long", 0]["skipped"]) == (7, 3)
    assert sum(short["counts"]) == 100, "durations of successes"
    assert totals["short"].totals.succeeded == 150 and sum(totals["short"].counts.values()) == 150
    assert [(r["job_id"], r["succeeded"], r["failed"], r["skipped"]) for r in jobs] == [
        (other, 7, 0, 3),
        (one, 100, 5, 0),
        (one, 50, 0, 0),
    ]


async def test_an_open_transaction_holds_the_rollups_back(fresh: Database) -> None:
    job = uuid4()
    async with fresh.connection() as connection, fresh.connection() as slow:
        at = await start_at_hours_ago(connection, 2)
        transaction = slow.transaction()
        await transaction.start()
        await ended(slow, job, at, n=10)
        began = await connection.fetchval("SELECT xact_start FROM pg_stat_activity WHERE backend_xid IS NOT NULL")
        held = await rollups.lock_rollups(connection, grace_s=0)
        assert held.ready_to < began, "what the open transaction will show is not added up yet"
        await transaction.rollback()
        assert (await rollups.lock_rollups(connection, grace_s=0)).ready_to > began


async def test_statistics_of_a_job_join_rollups_and_what_is_newer(fresh: Database) -> None:
    job = uuid4()
    async with fresh.connection() as connection:
        at = await start_at_hours_ago(connection, 5)
        now = await connection.fetchval("SELECT db_now()")
        for hour in range(5):
            await ended(connection, job, at + timedelta(hours=hour), n=100, ms=1000)
        await ended(connection, job, at + timedelta(hours=1), n=10, state="failed")
        await ended(connection, job, at + timedelta(minutes=40), n=4, ms=2000)

        async def stats(since: datetime, each: int = 10_000) -> search.JobStats:
            return (await search.job_stats(connection, tenant=1, job_ids=[job], since=since, each=each))[job]

        raw = {since: await stats(since) for since in (at, at + timedelta(minutes=30), now - timedelta(hours=2))}
        assert raw[at].ended == 514 and raw[at].p50 == 1000
    await leader(fresh).run_once()
    async with fresh.connection() as connection:
        await ended(connection, job, now - timedelta(seconds=5), n=2, ms=1000)
        for since, before in raw.items():
            found = (await search.job_stats(connection, tenant=1, job_ids=[job], since=since, each=10_000))[job]
            assert (found.ended, found.succeeded) == (before.ended + 2, before.succeeded + 2), since
            assert found.p50 == pytest.approx(1000, rel=0.05)
        bounded = (await search.job_stats(connection, tenant=1, job_ids=[job], since=at, each=5))[job]
        assert bounded.ended >= 514, "full hours do not depend on how many executions are read"
        empty = await search.job_stats(connection, tenant=1, job_ids=[uuid4()], since=at, each=5)
    assert [(s.ended, s.p50) for s in empty.values()] == [(0, None)]


async def test_after_a_long_gap_the_rollups_continue_a_day_ago(fresh: Database) -> None:
    async with fresh.connection() as connection:
        await rollups.restart_rollups(connection, at=datetime.fromisoformat("2001-01-01T00:00:00+00:00"))
    await leader(fresh).run_once()
    async with fresh.connection() as connection:
        now = await connection.fetchval("SELECT db_now()")
        first_at, until = await rollups.rollup_progress(connection)
    assert timedelta(hours=23) < now - first_at < timedelta(hours=26) and now - until < timedelta(minutes=6)


async def test_old_rollups_are_deleted(fresh: Database) -> None:
    job = uuid4()
    async with fresh.connection() as connection:
        at = await start_at_hours_ago(connection, 1)
        await ended(connection, job, at)
    await leader(fresh).run_once()
    async with fresh.connection() as connection:
        for table in ("job_rollups", "queue_rollups"):
            await connection.execute(f"UPDATE {table} SET at = at - interval '36 days'")
        assert await rollups.forget_rollups(connection, after_s=35 * 86_400.0, limit=10) == 1
        assert await connection.fetchval("SELECT count(*) FROM queue_rollups") == 0


async def test_adding_up_an_interval_reads_its_blocks_only(fresh: Database) -> None:
    """Of 200,000 executions of a day, five minutes are found by block ranges."""
    async with fresh.connection() as connection:
        at = await start_at_hours_ago(connection, 30)
        day = (at + timedelta(days=1)).replace(hour=0, minute=0)
        rows = f"history_{day:%Y%m%d}"
        jobs = [uuid4() for _ in range(20)]
        await connection.execute(
            "INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,"
            " fire_at, due_at, started_at, finished_at, duration_ms)"
            " SELECT gen_random_uuid(), ($1::uuid[])[1 + n % 20], 1, 1, 5, 1, 'succeeded', 'fire', 'short', at, at, at,"
            " at, 5 FROM (SELECT n, $2::timestamptz + n * interval '0.1 s' AS at FROM generate_series(1, 200000) n) d",
            jobs,
            day,
            timeout=120,
        )
        await connection.execute(f"VACUUM (ANALYZE) {rows}")
        since = day + timedelta(hours=3)
        async with connection.transaction():
            await rollups.restart_rollups(connection, at=since)
            await connection.execute("SET LOCAL enable_seqscan = off")
            text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + q("roll_up")
            plan = json.loads(await connection.fetchval(text, since, since + timedelta(minutes=5)))[0]["Plan"]
    scans = [node for node in _nodes(plan) if str(node.get("Relation Name", "")).startswith("history_")]
    read = [node for node in scans if node["Actual Rows"]]
    assert [node["Node Type"] for node in read] == ["Bitmap Heap Scan"]
    assert read[0]["Actual Rows"] == 3000
    assert read[0]["Shared Hit Blocks"] + read[0]["Shared Read Blocks"] < 250, "of about 4,000"


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in _nodes(child))]
