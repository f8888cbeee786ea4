"""What a scheduler asks of the database while nothing is due."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from mainspring.cli.serve import Server
from mainspring.config import ServeConfig
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.conftest import clone
from tests.support.scheduling import add, ledger, scheduler_on, step

JOBS = 100_000
WINDOW_S = 10
MOST_PER_S = 3.0


@pytest.mark.requirement(20)
async def test_an_idle_tick_asks_nothing(fresh: Database, virtual: VirtualClock) -> None:
    await add(fresh, "hourly", schedule=ScheduleSpec(every=3600))
    scheduler = await scheduler_on(fresh)
    await virtual.advance(minutes=59)
    await step(scheduler)
    await fresh.close()  # whoever asked now would fail
    for _ in range(1000):
        await scheduler.decide()
    await fresh.open()
    await virtual.advance(minutes=1)
    await step(scheduler)
    assert [at for at, _, _ in await ledger(fresh, "hourly")] == [3600]


@pytest.fixture
async def hundred_thousand(postgres: EmbeddedServer) -> str:
    """A database with so many hourly jobs, none due within the next half hour."""
    url = await clone(postgres)
    async with Database(url) as database:
        await add(database, "hourly", schedule=ScheduleSpec(every=3600))
        async with database.transaction() as connection:
            await connection.execute(
                "INSERT INTO jobs SELECT (r).* FROM (SELECT jsonb_populate_record(j, jsonb_build_object('job_id',"
                " gen_random_uuid(), 'name', 'hourly-' || n, 'shard', n % 64)) AS r"
                " FROM jobs j CROSS JOIN generate_series(1, $1::int) n) AS copies",
                JOBS - 1,
            )
            await connection.execute(
                "INSERT INTO job_versions SELECT j.job_id, 1, v.tenant_id, v.spec, v.created_at, v.created_by"
                " FROM jobs j CROSS JOIN job_versions v WHERE j.job_id <> v.job_id"
            )
            await connection.execute("UPDATE rollup_progress SET rolled_up_to = db_now()")  # nothing to catch up with
    return url


async def test_a_whole_idle_scheduler_asks_less_than_three_times_a_second(
    postgres: EmbeddedServer, hundred_thousand: str
) -> None:
    counter = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    name = hundred_thousand.partition("?")[0].rpartition("/")[2]
    server = Server(ServeConfig(database_url=hundred_thousand, roles=("scheduler",)))
    try:
        await counter.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        await server.start()
        assert server.scheduler is not None and len(server.scheduler.shards) == 64
        async with asyncio.timeout(30):  # the first looks of every loop are behind us
            while not await _all_started(counter, name):
                await counter.execute("SELECT pg_sleep(0.2)")
        before = await _calls(counter, name)
        await counter.execute("SELECT pg_sleep($1)", float(WINDOW_S))
        asked = {query: n - before.get(query, 0) for query, n in (await _calls(counter, name)).items()}
    finally:
        await server.stop()
        await counter.close()
    asked = {query: n for query, n in asked.items() if n}
    print(json.dumps({"statements_per_s": sum(asked.values()) / WINDOW_S, "jobs": JOBS}))
    assert 0 < sum(asked.values()) / WINDOW_S < MOST_PER_S, asked


async def _all_started(counter: asyncpg.Connection[asyncpg.Record], database: str) -> bool:
    """Whether the leader has evaluated the alert rules, added up statistics, and run the last check of the doctor."""
    asked = "\n".join(await _calls(counter, database))
    return all(
        part in asked for part in ("FROM rollup_progress", "FROM backfills b JOIN executions", "FROM measurements")
    )


async def _calls(counter: asyncpg.Connection[asyncpg.Record], database: str) -> dict[str, int]:
    rows = await counter.fetch(
        "SELECT query, sum(calls)::int AS n FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
        " WHERE d.datname = $1 GROUP BY query",
        database,
    )
    return {row["query"]: row["n"] for row in rows}
