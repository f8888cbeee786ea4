"""Workers, people and the system at the same runs at once: every run ends, and what is counted is what there is."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mainspring import wire
from mainspring.intake import runs as run_actions
from mainspring.store import doctor
from mainspring.store.db import Database
from tests.support.runs import NOT_NOW, TENANT, RunBench

pytestmark = pytest.mark.anyio

STEPS: dict[str, Any] = {
    "a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["a"]}, "d": {"needs": ["a"], "rule": "all_done"},
    "gate": {"approval": {}, "needs": ["b"]}, "e": {"needs": ["b", "c", "d"], "rule": "none_failed"},
    "f": {"needs": ["gate", "e"], "rule": "always"},
}  # fmt: skip
RUNS = 24


async def meddle(bench: RunBench, runs: list[wire.Run], rng: random.Random) -> None:
    """A person who approves, skips, completes and cancels whatever there is."""
    for run in rng.sample(runs, len(runs)):
        step = rng.choice(list(STEPS))
        try:
            match rng.randrange(5):
                case 0:
                    await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user")
                case 1:
                    await run_actions.skip(bench.runs, run.run_id, step, "so", tenant=TENANT, by="a new user")
                case 2:
                    await run_actions.force_complete(
                        bench.runs, run.run_id, step, "so", None, tenant=TENANT, by="a new user"
                    )
                case _:
                    await approve(bench, run)
        except NOT_NOW:
            continue


async def approve(bench: RunBench, run: wire.Run, by: str = "a new user") -> None:
    await run_actions.decide(
        bench.runs,
        run.run_id,
        "gate",
        wire.Decision(),
        tenant=TENANT,
        by=by,
        scopes=("write",),
        approved=True,
    )


async def work(bench: RunBench, rng: random.Random, done: asyncio.Event) -> None:
    while not done.is_set():
        rows = await bench.claim(rng.randint(1, 12))
        if rows:
            await bench.end(rows, lambda _: rng.choice(("succeeded", "succeeded", "failed", "cancelled")))
        await bench.timers.run_due()


@pytest.mark.parametrize("seed", range(3))
async def test_everybody_at_once(fresh: Database, seed: int) -> None:
    rng = random.Random(seed)
    first = RunBench(fresh)
    await first.apply("busy", STEPS)
    runs = [await first.start("busy") for _ in range(RUNS)]
    await first.session()
    workers, people = [RunBench(fresh) for _ in range(3)], [RunBench(fresh) for _ in range(3)]
    for worker in workers:
        worker.session_id = first.session_id
    done = asyncio.Event()
    working = [asyncio.create_task(work(w, random.Random(rng.random()), done)) for w in workers]
    await asyncio.gather(*[meddle(p, runs, random.Random(rng.random())) for p in people])
    done.set()
    await asyncio.gather(*working)
    for _ in range(20):
        await first.work()
        await first.timers.sweep()
        for run in (await first.run_views.list_runs(tenant=TENANT, states=("running",), limit=100)).items:
            try:
                await approve(first, run, "another user")  # a freed step made some runs those of the first
            except NOT_NOW:
                continue
        if not (await first.run_views.list_runs(tenant=TENANT, states=("running", "cancelling"), limit=100)).items:
            break
    found = [await first.get(run) for run in runs]
    assert {run.state for run in found} <= {"succeeded", "failed", "partial", "cancelled"}
    assert all(step.finished_at is not None for run in found for step in run.steps)
    async with fresh.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM executions") == 0
        diagnosis = await doctor.examine(connection)
    wrong = [f for f in diagnosis.findings if f.check.startswith(("I1 ", "I6", "I9", "I13", "I21"))]
    assert wrong == []
