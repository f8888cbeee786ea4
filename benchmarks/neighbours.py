"""Noisy neighbours: how long `true` takes from due to end while a sandboxed program misbehaves.

The program forks without end, uses up memory, floods its output or fills the disk. Measured on the same worker, and on
another worker of the same machine. A bare commit of one small row is timed as well: what that loses is due to the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from time import monotonic

from harness import Machine, machine, publish, quantile

from mainspring.client import AsyncClient
from mainspring.worker.isolation.sandbox import detect_sandbox_support

N = int(os.environ.get("BENCH_N", "100"))
GOAL = 1.2
LIMITS = {"pids": 64, "memory": "64Mi", "cpu": 0.25, "disk": "64Mi"}
HELD = {"disk filler at 8Mi/s": {"disk_rate": "8Mi"}}
"""Limits that only one of them has besides."""
FILLER = 'while :; do dd if=/dev/zero of="$TMPDIR/fill" bs=1M count=200; done 2>/dev/null'
BAD = {
    "fork bomb": "bomb() { bomb | bomb & wait; }; while :; do bomb; done 2>/dev/null",
    "memory hog": "head -c 1G /dev/zero | tail -c 1G",
    "output flood": "yes",
    "disk filler": FILLER,
    "disk filler at 8Mi/s": FILLER,
}
WANTED = os.environ.get("BENCH_BAD", ",".join(BAD)).split(",")
"""For a part of it: BENCH_BAD="disk filler"."""
PLACES = ("same", "other")
COMMIT = "commit"


async def main() -> None:
    async with machine() as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        for place in PLACES:
            target.work("--label", f"place={place}", slots=8, name=place)
        async with target.client() as client:
            async with target.database.connection() as connection:
                await connection.execute("CREATE TABLE bare_commits (id bigint GENERATED ALWAYS AS IDENTITY)")
            limits, missing = usable()
            await create(client, limits)
            for place in PLACES:
                await took(client, place, 10)  # warm-up
            found = {"quiet": await measured(target, client)}
            for name in WANTED:
                async with going_on(client, name):
                    found[name] = await measured(target, client)
            after = await measured(target, client)
    report(found, after, missing)


def named(neighbour: str) -> str:
    return neighbour.replace(" ", "-").replace("/", "-").lower()


def usable() -> tuple[dict[str, object], list[str]]:
    """Return the limits that this machine can enforce."""
    labels = detect_sandbox_support().labels()
    able = {name: value for name, value in LIMITS.items() if name == "disk" or f"sandbox/{name}" in labels}
    return able, sorted(LIMITS.keys() - able.keys())


async def create(client: AsyncClient, limits: dict[str, object]) -> None:
    for place in PLACES:
        task = {"kind": "shell", "argv": ["/bin/true"]}
        await client.create_job({"name": place, "task": task, "labels": {"place": place}})
    for name, script in BAD.items():
        await client.create_job(
            {
                "name": named(name),
                "task": {"kind": "shell", "argv": [script], "shell": True},
                "labels": {"place": "same"},
                "sandbox": limits | HELD.get(name, {}),
                "timeout": "5s",
                "retries": {"max": 0},
            }
        )


@contextlib.asynccontextmanager
async def going_on(client: AsyncClient, name: str) -> AsyncIterator[None]:
    """Run the bad program; when a limit or the timeout ends it, start it again until the measurement is over."""

    async def again() -> None:
        while True:
            execution = await client.trigger(named(name))
            begun.set()
            await client.wait(execution.execution_id, timeout_s=60)

    begun = asyncio.Event()
    running = asyncio.create_task(again())
    await begun.wait()
    await asyncio.sleep(1)
    try:
        yield
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for execution in (await client.executions(job=named(name), limit=5)).items:
            with contextlib.suppress(Exception):
                await client.cancel(execution.execution_id)
                await client.wait(execution.execution_id, timeout_s=30)


async def measured(target: Machine, client: AsyncClient) -> dict[str, float]:
    """Return median milliseconds, alternating between the two workers so that disturbances affect both."""
    times: dict[str, list[float]] = {place: [] for place in (*PLACES, COMMIT)}
    async with target.database.connection() as connection:
        for _ in range(N):
            for place in PLACES:
                times[place] += await took(client, place, 1)
                began = monotonic()
                await connection.execute("INSERT INTO bare_commits DEFAULT VALUES")
                times[COMMIT].append((monotonic() - began) * 1000)
    return {place: quantile(values, 0.5) for place, values in times.items()}


async def took(client: AsyncClient, job: str, count: int) -> list[float]:
    found = []
    for _ in range(count):
        ended = await client.wait((await client.trigger(job)).execution_id, timeout_s=60)
        assert ended.state == "succeeded" and ended.finished_at is not None
        found.append((ended.finished_at - ended.due_at).total_seconds() * 1000)
    return found


def report(found: dict[str, dict[str, float]], after: dict[str, float], missing: list[str]) -> None:
    shown = (*PLACES, COMMIT)
    quiet = {place: (found["quiet"][place] + after[place]) / 2 for place in shown}
    ratios = {(name, place): found[name][place] / quiet[place] for name in WANTED for place in shown}
    lines = [
        f"- `true` by two workers of 8 slots, one at a time, {N} times each, from due to its end; medians. The"
        f" neighbour has {LIMITS['pids']} processes, {LIMITS['memory']} of memory and of disk, {LIMITS['cpu']} cores"
        + (f"; this machine can't limit {' and '.join(missing)}" if missing else ""),
        "- bare commit: one small row, by the benchmark itself, beside each; each of the times holds one such commit",
        "",
        "| neighbour | same worker, ms | ratio | other worker, ms | ratio | goal | bare commit, ms | ratio |",
        "|---|---|---|---|---|---|---|---|",
        f"| none, before and after | {quiet['same']:.1f} | | {quiet['other']:.1f} | | | {quiet[COMMIT]:.2f} | |",
    ]
    for name in WANTED:
        same, other = (f"{found[name][place]:.1f} | {ratios[name, place]:.2f}" for place in PLACES)
        commit = f"{found[name][COMMIT]:.2f} | {ratios[name, COMMIT]:.2f}"
        lines.append(f"| {name} | {same} | {other} | ≤ {GOAL} | {commit} |")
    figures: dict[str, float] = {"quiet_ms": round(quiet["same"], 1)}
    for (name, place), ratio in ratios.items():
        figures[f"{named(name).replace('-', '_')}_{place}"] = round(ratio, 2)
    publish("neighbours", lines, figures)


if __name__ == "__main__":
    asyncio.run(main())
