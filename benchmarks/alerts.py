"""Cost of alerts: evaluating the rules over ten million final executions, and settling with and without subscribers.

make bench ARGS=alerts        ROWS=1000000 for a short try
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from uuid import UUID, uuid4

from harness import machine, publish, quantile

from mainspring import wire
from mainspring.alerts import channels
from mainspring.domain.channel import SlackTarget
from mainspring.domain.settlement import AttemptResult, Settled
from mainspring.store import measurements, outbox, results
from mainspring.store.db import Database, database_now_ms
from mainspring.vault.keyring import Keyring, new_key_line, read_keys
from mainspring.vault.vault import Vault

ROWS = int(os.environ.get("ROWS", "10000000"))
JOBS = 1_000
BATCH = 500
ROUNDS = 30


async def fill(database: Database) -> None:
    """Executions of the last two hours, of a thousand jobs that all have deadlines."""
    async with database.connection() as connection:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute(
            "INSERT INTO jobs (job_id, tenant_id, name, version, shard, change, active_from, queue, priority, overlap,"
            " misfire, misfire_s, misfire_most, created_at, updated_at, finish_by_s, start_by_s)"
            " SELECT gen_random_uuid(), 1, 'job-' || n, 1, n % 64, 1,"
            " db_now(), 'short', 5, 'skip', 'latest', 1, 1, db_now(), db_now(), 600, 60"
            " FROM generate_series(1, $1::int) n",
            JOBS,
        )
        for part in range(20):
            await connection.execute(
                "INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger,"
                " queue, fire_at, due_at, started_at, finished_at, duration_ms) SELECT"
                " (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')"
                " || substr(md5(n::text || $2), 1, 20))::uuid,"
                " jobs[1 + n % cardinality(jobs)], 1, 1, 5, 1,"
                " CASE WHEN n % 200 = 0 THEN 'failed' ELSE 'succeeded' END, 'fire', 'short', at, at, at,"
                " at + interval '1 second', n % 1000 FROM (SELECT array_agg(job_id) AS jobs FROM jobs) j,"
                " LATERAL (SELECT n, db_now() - make_interval(secs => 7200.0 * n / $1) AS at"
                "          FROM generate_series(1, $1::int) n) t",
                ROWS // 20,
                str(part),
                timeout=1800,
            )
        await connection.execute("ANALYZE history", timeout=600)
        await connection.execute("ANALYZE jobs")


async def timed(rounds: int, work: Callable[[], Awaitable[object]]) -> list[float]:
    took = []
    for _ in range(rounds):
        started = time.perf_counter()
        await work()
        took.append((time.perf_counter() - started) * 1000)
    return took


async def settle_rounds(database: Database, job: UUID, *, tell: bool) -> list[float]:
    """Return milliseconds to settle a batch of successes, with or without the statement that writes notifications."""
    session, took = uuid4(), []
    async with database.hot() as connection:
        for _ in range(ROUNDS):
            ids = [
                r["execution_id"]
                for r in await connection.fetch(
                    "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, attempt, state,"
                    " trigger, queue, rank, fire_at, due_at, queued_at, started_at, session_id)"
                    " SELECT gen_random_uuid(), $1, 1, 1, 0, 5, 1,"
                    " 'running', 'fire', 'short', n, db_now(), db_now(), db_now(), db_now(), $2"
                    " FROM generate_series(1, $3::int) n RETURNING execution_id",
                    job,
                    session,
                    BATCH,
                )
            ]
            ended = [AttemptResult(i, 1, session, "succeeded", duration_ms=1) for i in sorted(ids)]
            started = time.perf_counter()
            if tell:
                async with connection.transaction():
                    await results.settle_succeeded(connection, ended=ended, settled=Settled())
                    await outbox.notify_settled(connection, execution_ids=ids)
            else:
                await results.settle_succeeded(connection, ended=ended, settled=Settled())
            took.append((time.perf_counter() - started) * 1000)
    return took


async def main() -> None:
    async with machine() as found:
        database = found.database
        await fill(database)
        async with database.connection() as connection:
            now_ms = int(await database_now_ms(connection))
            evaluation = await timed(ROUNDS, lambda: measurements.readings(connection))
            durations = await timed(
                ROUNDS, lambda: measurements.durations(connection, now_ms=now_ms, after=UUID(int=0), limit=15)
            )
            job = await connection.fetchval("SELECT job_id FROM jobs LIMIT 1")
        plain = await settle_rounds(database, job, tell=False)
        request = wire.NewChannel(name="hook", target=SlackTarget("https://example.com/x"), events=["execution.failed"])
        vault = Vault(Keyring(read_keys(new_key_line("bench"), "a new key")))
        await channels.create(database, vault, request, tenant=1, by="bench")
        unheard = await settle_rounds(database, job, tell=True)
        spec = wire.ChannelSpec(target=SlackTarget(), events=["execution.succeeded"])
        await channels.replace(database, vault, "hook", spec, tenant=1, by="bench")
        told = await settle_rounds(database, job, tell=True)
    rows = [
        ("one evaluation of all rules", evaluation),
        ("percentiles of 15 jobs, every other evaluation", durations),
        (f"settle {BATCH} successes, nobody subscribed", plain),
        ("the same, a channel asks for failures and the statement runs anyway", unheard),
        (f"the same, a channel asks for successes: {BATCH} messages written", told),
    ]
    publish(
        "alerts",
        [
            f"{ROWS:,} final executions of the last two hours, {JOBS:,} jobs, all with deadlines.",
            "",
            "| | p50 ms | p95 ms |",
            "|---|---|---|",
            *(f"| {name} | {quantile(took, 0.5):.1f} | {quantile(took, 0.95):.1f} |" for name, took in rows),
        ],
        {name: round(quantile(took, 0.95), 2) for name, took in rows},
    )


if __name__ == "__main__":
    asyncio.run(main())
