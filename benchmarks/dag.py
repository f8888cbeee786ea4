"""Overhead of workflows: a chain of steps, wide fan-outs, and a run of 10,000 steps.

Durations are taken from the database: from the start of a run to the end of its last step, by real processes on a
durable PostgreSQL. Also the cost of releasing a step, measured around the statements.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from uuid import UUID

from harness import Machine, machine, publish, quantile

from mainspring.domain.job import NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.workflow.spec import Step, StepDefaults, WorkflowSpec

CHAIN = int(os.environ.get("BENCH_CHAIN", "50"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "25"))
LARGE = int(os.environ.get("BENCH_LARGE", "10000"))
SLOTS = int(os.environ.get("BENCH_SLOTS", "200"))
NOOP = NoopTask()


def chain(length: int) -> dict[str, Step]:
    return {f"s{n}": Step(task=NOOP, needs=(f"s{n - 1}",) if n else ()) for n in range(length)}


def fan(width: int) -> dict[str, Step]:
    """Return a fan-out and fan-in: one step, many that need it, and one that needs them all."""
    middle = {f"m{n}": Step(task=NOOP, needs=("first",)) for n in range(width)}
    return {"first": Step(task=NOOP), **middle, "last": Step(task=NOOP, needs=tuple(middle))}


def layers(steps: int, width: int = 100) -> dict[str, Step]:
    """Return layers in which each step needs two steps of the layer before."""
    found: dict[str, Step] = {}
    for n in range(steps):
        layer, place = divmod(n, width)
        before = (layer - 1) * width
        needs = tuple({f"s{before + place}", f"s{before + (place + 1) % width}"}) if layer else ()
        found[f"s{n}"] = Step(task=NOOP, needs=needs)
    return found


async def timed(target: Machine, name: str, rounds: int) -> list[float]:
    """Return the seconds of each run, one after the other; the first warms up and does not count."""
    found = []
    async with target.client() as client:
        for _ in range(rounds + 1):
            run = await client.start_run(name)
            await client.wait(run.run_id, timeout_s=120)
            found.append(await lasted(target, run.run_id))
    return found[1:]


async def lasted(target: Machine, run_id: UUID) -> float:
    async with target.database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT state, extract(epoch FROM finished_at - started_at)::float AS s FROM runs WHERE run_id = $1", run_id
        )
    assert row["state"] == "succeeded", row["state"]
    return float(row["s"])


async def main() -> None:
    async with machine(used=True) as target:
        target.serve("api")
        target.serve("scheduler")
        await target.until_ready()
        target.work(slots=SLOTS)
        defaults = StepDefaults(retries=RetryPolicy(max=0))
        written: dict[str, float] = {}
        async with target.client() as client:
            specs: dict[str, Any] = {
                "chain": chain(CHAIN),
                "fan10": fan(10),
                "fan100": fan(100),
                "fan1000": fan(1000),
                "large": layers(LARGE),
            }
            for name, steps in specs.items():
                started = time.perf_counter()
                await client.apply_workflow(WorkflowSpec(name=name, steps=steps, defaults=defaults))
                written[name] = time.perf_counter() - started
        per_step = [s / CHAIN * 1000 for s in await timed(target, "chain", ROUNDS)]
        fans = {width: await timed(target, f"fan{width}", max(2, ROUNDS // 5)) for width in (10, 100, 1000)}
        large = await timed(target, "large", 1)
        releases = {width: await release_us(target, width) for width in (10, 100, 1000)}
    middle = {width: quantile(found, 0.5) for width, found in fans.items()}
    step_ms, quick_ms, slow_ms = (quantile(per_step, share) for share in (0.5, 0.1, 0.9))
    publish(
        "dag",
        [
            f"- chain of {CHAIN}, medians of {ROUNDS} runs; one api process, one worker of {SLOTS} slots",
            "",
            "| | measured | goal |",
            "|---|---|---|",
            f"| chain, ms per step | {step_ms:.2f} (a tenth under {quick_ms:.2f}, over {slow_ms:.2f}) | 4.5, aim 2.5 |",
            f"| fan-out 100, s | {middle[100]:.3f} | 0.3, aim 0.12 |",
            f"| fan-out 1,000, s | {middle[1000]:.3f} | |",
            f"| {LARGE:,} steps written, s | {written['large']:.2f} | |",
            f"| {LARGE:,} steps run, s | {large[0]:.2f} | |",
            f"| release, µs per edge at 10 / 100 / 1,000 | "
            f"{releases[10]:.0f} / {releases[100]:.0f} / {releases[1000]:.0f} | |",
        ],
        {
            "chain_step_ms": round(step_ms, 2),
            "fanout100_s": round(middle[100], 3),
            "fanout1000_s": round(middle[1000], 3),
            "large_written_s": round(written["large"], 2),
            "large_run_s": round(large[0], 2),
            "release_us_per_edge": {str(width): round(us, 1) for width, us in releases.items()},
        },
    )


async def release_us(target: Machine, width: int) -> float:
    """Return microseconds per edge to release `width` steps at once, in the transaction that ends their parent."""
    from mainspring.domain.workflow.run import ExecutionEnd
    from mainspring.runs.advance import advance
    from mainspring.runs.plans import PlanCache

    target.stop("worker")
    plans, took = PlanCache(), []
    async with target.client() as client:
        for _ in range(4):
            run = await client.start_run(f"fan{width}")
            first = run.steps[0].execution_id
            assert first is not None
            async with target.database.hot() as connection:
                transaction = connection.transaction()
                await transaction.start()
                started = time.perf_counter()
                await advance(connection, plans, [ExecutionEnd(first, "succeeded")])
                took.append(time.perf_counter() - started)
                await transaction.rollback()
            await client.cancel_run(run.run_id)
    return quantile(took[1:], 0.5) / width * 1e6


if __name__ == "__main__":
    asyncio.run(main())
