"""Start delay at fifty fires per second, with scheduler, api and worker against a real database."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.conftest import Cluster
from tests.support.figures import record
from tests.support.processes import until_async
from tests.support.tcp_proxy import later

pytestmark = pytest.mark.anyio

JOBS = 50
LIMIT_MS = 100
SECONDS = 6
TRIES = 6
"""Windows of so many seconds in the short form, until the machine leaves room for one."""
LONG_S = int(os.environ.get("LATENESS_SECONDS", "0"))
"""With this the p99 over all of so many seconds must be within the limit: only for a machine that does nothing else."""
TRANSACTIONS = 3
"""Between a due instant and the start of its function: the decision, the claim, and the report of the start."""
EARLY = "SELECT count(*) FROM history WHERE trigger = 'fire' AND (queued_at < fire_at OR started_at < fire_at)"
ALL_SECONDS = """
SELECT count(*), count(DISTINCT (job_id, fire_at)), coalesce(min(started_at - fire_at) >= interval '0', true),
       percentile_disc(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - fire_at) * 1000)
FROM history WHERE trigger = 'fire' AND state = 'succeeded' AND job_id = ANY ($1::uuid[])
AND fire_at >= to_timestamp($2) AND fire_at < to_timestamp($2 + $3)
"""


async def observed(cluster: Cluster) -> tuple[int, int]:
    """From the start latency histogram: the number of starts, and the number within the limit."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as http:
        text = (await http.get("/metrics")).text
    name = "mainspring_start_latency_seconds"
    found = [re.search(rf"^{name}{what} ([\d.e+]+)$", text, re.MULTILINE) for what in ("_count", r'_bucket{le="0.1"}')]
    return tuple(0 if one is None else int(float(one[1])) for one in found)  # type: ignore[return-value]


async def machine_ms(cluster: Cluster, until_s: float) -> float:
    """What the machine itself needs, in the same seconds: the worst of a timer and bare commits at each full second."""
    worst, loop = 0.0, asyncio.get_running_loop()
    async with cluster.database.connection() as connection:
        await connection.execute("CREATE TEMP TABLE IF NOT EXISTS commits (at timestamptz)")
        now_s = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
        ahead_s = now_s - loop.time()
        second = int(now_s) + 1
        while second < until_s:
            due = second - ahead_s
            await later(max(0.0, due - loop.time()))
            for _ in range(TRANSACTIONS):
                await connection.execute("INSERT INTO commits VALUES (clock_timestamp())")
            worst, second = max(worst, (loop.time() - due) * 1000), second + 1
    return worst


async def window(cluster: Cluster, jobs: Sequence[UUID], seconds: int) -> tuple[float, float]:
    """The p99 over every fire of the next seconds, however late, and what the machine needed meanwhile."""
    found: list[tuple[int, int, bool, float]] = []
    async with cluster.database.connection() as connection:
        first = 1 + await connection.fetchval("SELECT ceil(extract(epoch FROM db_now()))::bigint")

    async def complete() -> bool:
        async with cluster.database.connection() as connection:
            row = await connection.fetchrow(ALL_SECONDS, jobs, first, seconds)
        assert row is not None
        found.append(tuple(row))
        return found[-1][0] >= JOBS * seconds

    machine_worst = await machine_ms(cluster, first + seconds)
    await until_async(f"all fires of {seconds} seconds", complete, within_s=60)
    count, distinct, punctual, p99_ms = found[-1]
    assert count == distinct == JOBS * seconds, "each job once in each second"
    assert punctual, "late, but never early"
    return float(p99_ms), machine_worst


@pytest.mark.requirement(13)
async def test_ninety_nine_of_a_hundred_start_within_a_tenth_of_a_second(cluster: Cluster) -> None:
    """Over all fires of a window. In the short form the limit is extended by what the machine itself needed then."""
    before = await observed(cluster)
    more = {"schedule": {"every": 1}, "overlap": "allow", "misfire": {"policy": "all"}}
    specs = [{"name": f"each-{n}", "task": {"kind": "noop"}, **more} for n in range(JOBS)]
    async with cluster.client() as client, cluster.worker(slots=2 * JOBS):
        made = [job.job_id for job in await asyncio.gather(*[client.create_job(spec) for spec in specs])]
        seconds, tried = LONG_S or SECONDS, list[tuple[float, float]]()
        while not tried or (not LONG_S and len(tried) < TRIES and tried[-1][0] >= LIMIT_MS + tried[-1][1]):
            tried.append(await window(cluster, made, seconds))
        for job in made:
            await client.delete_job(job)
    p99_ms, machine_worst = tried[-1]
    figures: dict[str, Any] = {"p99_ms": round(p99_ms, 1), "machine_ms": round(machine_worst, 1), "windows": len(tried)}
    record("start delay over all seconds", seconds=seconds, fires=JOBS * seconds, **figures)
    assert p99_ms < (LIMIT_MS if LONG_S else LIMIT_MS + machine_worst), tried
    async with cluster.database.connection() as connection:
        assert await connection.fetchval(EARLY) == 0, "late, but never early"
    # One observation for each claim: the first of what it took.
    count, within = (now - then for now, then in zip(await observed(cluster), before, strict=True))
    assert 0 < within <= count
