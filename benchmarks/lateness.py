"""Start delay: a job every second for a minute; the task itself reports when it ran."""

from __future__ import annotations

import asyncio
import os

from harness import machine, publish, quantile

from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec

SECONDS = int(os.environ.get("BENCH_SECONDS", "60"))


async def main() -> None:
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        target.work(slots=8)
        await target.until_ready()
        async with target.client() as client:
            task = ShellTask(argv=("date", "+%s%N"))
            await client.create_job(JobSpec(name="hello", task=task, schedule=ScheduleSpec(every=1)))
            await asyncio.sleep(SECONDS + 2)
            found = (await client.history("hello", limit=500)).items
            done = [e for e in found if e.state == "succeeded"]
            ran_at = [int((await client.logs(e.execution_id)).chunks[0].text) / 1e6 for e in done]
    running = [at - e.fire_at.timestamp() * 1000 for at, e in zip(ran_at, done, strict=True)]
    queued = [(e.queued_at - e.fire_at).total_seconds() * 1000 for e in done if e.queued_at is not None]
    claimed = [float(e.late_ms) for e in done if e.late_ms is not None]
    assert len(done) >= SECONDS, f"{len(done)} executions in {SECONDS} s"
    rows = [
        f"| {name} | {quantile(values, 0.5):.1f} | {quantile(values, 0.99):.1f} | {goal} |"
        for name, values, goal in (
            ("due to queued, ms", queued, ""),
            ("due to claimed, ms", claimed, ""),
            ("due to running program, ms", running, "p99 at most 100"),
        )
    ]
    publish(
        "lateness",
        [f"- one job every second for {SECONDS} s", "", "| | p50 | p99 | goal |", "|---|---|---|---|", *rows],
        {
            "start_late_p50_ms": round(quantile(running, 0.5), 1),
            "start_late_p99_ms": round(quantile(running, 0.99), 1),
            "executions": len(done),
        },
    )


if __name__ == "__main__":
    asyncio.run(main())
