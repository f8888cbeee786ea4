"""Promoting delayed executions that are due one after another: with reads of PostgreSQL, and with `--delays redis://`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import Machine, machine, quantile

from mainspring.backends.engines import open_delays
from mainspring.clock import DatabaseClock
from mainspring.domain.execution import execution_id
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.ids import SHARDS
from mainspring.intake import jobs
from mainspring.scheduler.promotion import Promotion
from mainspring.store.executions import NewExecution, insert_executions
from tests.support.engine_servers import RedisServer

N = int(os.environ.get("BENCH_DELAYED", "4000"))
JOBS = 256
TENANT = 1
GAP_MS = 5.0
"""Between two due instants."""
LEAD_S = 3.0
"""From the insertion to the first."""
LATE = """
SELECT (extract(epoch FROM queued_at - due_at) * 1000)::float8 AS ms FROM executions
WHERE state = 'queued' AND due_at = ANY ($1::timestamptz[])"""


@dataclass(frozen=True)
class Promoted:
    """What the promotion of a number of executions cost."""

    postgresql_us: float  # of its CPU, for each execution
    reads: int  # of what waits next
    late_p50_ms: float
    late_p99_ms: float


async def promotion_cost(target: Machine, url: str | None, count: int = N) -> Promoted:
    """Promote executions of many shards that are due one after another, as a scheduler with all shards does."""
    delays = open_delays(url, prefix="mainspring-bench")
    if delays is not None:
        await delays.start()
        await delays.ready()
    try:
        due = await _delayed(target, count)
        clock = DatabaseClock()
        clock.observe(datetime.now(UTC).timestamp() * 1000, clock.monotonic(), clock.monotonic())  # of this machine
        promotion = Promotion(target.database, clock, delays)
        owned = dict.fromkeys(range(SHARDS), 1)
        await promotion.promote(owned)
        reads, before_s = promotion.reads, target.cpu_s()["postgresql"]
        while promotion.next_ms is not None:
            await asyncio.sleep(max(0.0, promotion.next_ms / 1000 - datetime.now(UTC).timestamp()))
            await promotion.promote(owned)
        used_s = target.cpu_s()["postgresql"] - before_s
    finally:
        if delays is not None:
            await delays.stop()
    async with target.database.connection() as connection:
        late = [row["ms"] for row in await connection.fetch(LATE, due)]
    assert len(late) == count, f"{count - len(late)} were not promoted"
    return Promoted(
        round(used_s * 1e6 / count),
        promotion.reads - reads,
        round(quantile(late, 0.5), 2),
        round(quantile(late, 0.99), 2),
    )


async def _delayed(target: Machine, count: int) -> list[datetime]:
    """Insert executions of many jobs; return when they are due."""
    ids = []
    for n in range(JOBS):
        spec = JobSpec(name=f"delayed-{n}-{os.urandom(4).hex()}", task=NoopTask())
        ids.append(await jobs.create(target.database, spec, tenant=TENANT, by="bench"))
    first = datetime.now(UTC) + timedelta(seconds=LEAD_S)
    due = [first + timedelta(milliseconds=GAP_MS * n) for n in range(count)]
    new = [
        NewExecution(
            execution_id(ids[n % JOBS], int(at.timestamp() * 1000), f"manual:{n}"), ids[n % JOBS], "manual", at
        )
        for n, at in enumerate(due)
    ]
    async with target.database.connection() as connection:
        for start in range(0, count, 1000):
            await insert_executions(connection, tenant=TENANT, new=new[start : start + 1000], created_by="bench")
    return due


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mainspring-delays-") as folder:
        redis = RedisServer(Path(folder) / "redis")
        await redis.start()
        try:
            async with machine(used=True) as target:
                await promotion_cost(target, None, 500)
                engines = {"postgresql": None, "redis": redis.url}
                found = {name: await promotion_cost(target, url) for name, url in engines.items()}
        finally:
            redis.kill()
    print(json.dumps({name: asdict(one) for name, one in found.items()}))


if __name__ == "__main__":
    asyncio.run(main())
