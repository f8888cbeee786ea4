"""What was kept long enough is forgotten: runs with their steps and events, backfills."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.retention import Retention
from mainspring.intake import backfills, jobs
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission, Submitter
from mainspring.store import retention
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import executions as execution_views
from tests.support.runs import TENANT, RunBench

pytestmark = pytest.mark.anyio


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))


def keeper(bench: RunBench, **more: Any) -> Retention:
    return Retention(bench.database, leads=lambda: True, **more)


async def test_runs_are_kept_for_ninety_days_after_their_end(fresh: Database, virtual: VirtualClock) -> None:
    bench = RunBench(fresh)
    steps: dict[str, Any] = {"a": {}, "sent": {"event": {"name": "go"}}}
    old, waiting = await bench.begin("flow", steps), await bench.start("flow")
    await run_actions.send_event(bench.runs, old.run_id, "go", None, tenant=TENANT, by="test")
    await bench.work()
    await virtual.advance(days=89)
    await keeper(bench).run_once()  # makes today's partitions
    young = await bench.start("flow")
    await run_actions.cancel(bench.runs, young.run_id, tenant=TENANT, by="test")
    await keeper(bench).run_once()
    assert await count(fresh, "runs") == 3
    await virtual.advance(days=1, seconds=1)
    await keeper(bench).run_once()
    assert (await count(fresh, "runs"), await count(fresh, "run_steps"), await count(fresh, "run_events")) == (2, 4, 0)
    with pytest.raises(NotFound):
        await bench.get(old)
    assert (await bench.get(waiting)).state == "running", "what has not ended is kept, however old"


async def test_many_are_forgotten_in_portions(fresh: Database, virtual: VirtualClock) -> None:
    bench = RunBench(fresh)
    await bench.apply("flow", {"a": {}})
    for _ in range(120):
        await bench.start("flow")
    await bench.work()
    await virtual.advance(days=8)
    await keeper(bench, keep_runs_s=7 * 86_400.0).run_once()
    assert await count(fresh, "runs") == 0 and await count(fresh, "run_steps") == 0


async def test_backfills_are_forgotten_too(fresh: Database, virtual: VirtualClock) -> None:
    bench = RunBench(fresh)
    spec = JobSpec(name="hourly", task=NoopTask(), schedule=ScheduleSpec(every=3600, aligned=True))
    await jobs.create(fresh, spec, tenant=TENANT, by="test")
    request = wire.BackfillRequest(from_=START.replace(hour=1), to=START.replace(hour=3))
    made = await backfills.create(fresh, "hourly", request, tenant=TENANT, by="test")
    await backfills.cancel(fresh, made, tenant=TENANT, by="test")
    await virtual.advance(days=91)
    await keeper(bench).run_once()
    assert await count(fresh, "backfills") == 0


async def partitions(database: Database, parent: str) -> list[str]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = $1::text::regclass ORDER BY 1",
            parent,
        )
    return [row["relname"].removeprefix(f"{parent}_") for row in rows]


@pytest.mark.requirement(67)
async def test_days_vanish_when_they_were_kept_long_enough(fresh: Database, virtual: VirtualClock) -> None:
    """Executions and their output by whole days, each as long as is set, and nothing that lives."""
    bench = RunBench(fresh)
    ten_days = keeper(bench, keep_history_s=10 * 86_400.0, keep_output_s=3 * 86_400.0, keep_runs_s=5 * 86_400.0)
    submitter, made = Submitter(fresh), list[UUID]()
    spec = JobSpec(name="a", task=NoopTask(), retries=RetryPolicy(max=0))
    job_id = await jobs.create(fresh, spec, tenant=TENANT, by="test")
    for _ in range(14):
        await ten_days.run_once()
        made.append(await submitter.submit(Submission(TENANT, "test", job_id)))
        await bench.end(await bench.claim(), lambda _: "failed")
        await virtual.advance(days=1)
    waiting = await submitter.submit(Submission(TENANT, "test", job_id))
    await virtual.advance(days=1)
    await ten_days.run_once()
    days = [(START + timedelta(days=n)).strftime("%Y%m%d") for n in range(60)]
    assert [d for d in await partitions(fresh, "history") if d < days[15]] == days[5:15]
    assert [d for d in await partitions(fresh, "log_chunks") if d < days[15]] == days[12:15]
    for n, execution_id in enumerate(made):
        if n < 5:
            with pytest.raises(NotFound):
                await execution_views.get(fresh, execution_id, tenant=TENANT)
        else:
            assert (await execution_views.get(fresh, execution_id, tenant=TENANT)).attempts
    assert (await execution_views.get(fresh, waiting, tenant=TENANT)).state == "queued"
    assert await count(fresh, "attempts") == 9
    async with fresh.connection() as connection:
        deleted = "SELECT coalesce(sum(n_tup_del), 0) FROM pg_stat_user_tables WHERE relname LIKE 'history%'"
        assert await connection.fetchval(deleted) == 0, "no row of history was touched"


async def test_a_tenant_keeps_its_history_for_a_shorter_time(fresh: Database, virtual: VirtualClock) -> None:
    bench = RunBench(fresh)
    submitter = Submitter(fresh)
    async with fresh.connection() as connection:
        other = await connection.fetchval(
            "INSERT INTO tenants (name, keep_history_s) VALUES ('other', 259200) RETURNING tenant_id"
        )
    spec = JobSpec(name="a", task=NoopTask(), retries=RetryPolicy(max=0))
    ids = {tenant: await jobs.create(fresh, spec, tenant=tenant, by="test") for tenant in (TENANT, other)}
    made: dict[int, list[UUID]] = {tenant: [] for tenant in ids}
    for _ in range(8):
        await keeper(bench).run_once()
        for tenant, job_id in ids.items():
            made[tenant].append(await submitter.submit(Submission(tenant, "test", job_id)))
        while batch := await bench.claim():
            await bench.end(batch)
        await virtual.advance(days=1)
    await keeper(bench).run_once()

    async def kept(tenant: int) -> list[UUID]:
        async with fresh.connection() as connection:
            rows = await connection.fetch("SELECT execution_id FROM history WHERE tenant_id = $1 ORDER BY 1", tenant)
        return [row["execution_id"] for row in rows]

    assert await kept(TENANT) == made[TENANT]
    assert await kept(other) == made[other][-3:], "three whole days"
    async with fresh.connection() as connection:
        await connection.execute("UPDATE tenants SET keep_history_s = NULL")
        assert await retention.forget_history(connection, tenant=other, limit=10) is None
        await connection.execute("UPDATE tenants SET keep_history_s = 86400 WHERE tenant_id = $1", other)
        batches = 0
        while await retention.forget_history(connection, tenant=other, limit=1) is not None:
            batches += 1
    assert await kept(other) == made[other][-1:] and batches >= 4, "one execution at a time"
    assert await kept(TENANT) == made[TENANT]


async def test_a_day_that_is_in_use_goes_the_next_time(fresh: Database, virtual: VirtualClock) -> None:
    await keeper(RunBench(fresh)).run_once()
    await virtual.advance(days=3)
    before = await partitions(fresh, "history")
    async with fresh.transaction() as reader, fresh.connection() as connection:
        await reader.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await reader.fetchval("SELECT count(*) FROM history")
        assert await retention.drop_partitions(connection, "history", after_s=86_400.0) == []
        assert await partitions(fresh, "history") == before
    async with fresh.connection() as connection:
        dropped = await retention.drop_partitions(connection, "history", after_s=86_400.0)
    assert dropped == [f"history_{day}" for day in before[:2]]
