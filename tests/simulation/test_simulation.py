"""Seeded runs of a whole cluster in virtual time, on real PostgreSQL; the invariants are checked after every step.

`make simulate SECONDS=600` searches new seeds, `make simulate SEED=39` repeats one. A run that fails prints its seed,
and the few steps that lead to the failure.
"""

from __future__ import annotations

import os
import random

import pytest

from mainspring.store.db import Database
from mainspring.store.queries import q
from mainspring.testing.clock import VirtualClock
from tests.simulation.runs import Outcome, Simulator, search

pytestmark = pytest.mark.anyio

SEEDS = (1, 2, 4, 5, 6, 8, 11)
"""Of the short form."""
SEED = os.environ.get("SIMULATE_SEED")
SECONDS = float(os.environ.get("SIMULATE_SECONDS", "0"))


@pytest.fixture
async def simulator(fresh: Database, virtual: VirtualClock) -> Simulator:
    found = Simulator(fresh, virtual)
    await found.prepare()
    return found


async def demand(simulator: Simulator, outcome: Outcome) -> None:
    if outcome.error is not None:
        pytest.fail(str(await simulator.shrink(outcome)), pytrace=False)


@pytest.mark.fault("F26")
@pytest.mark.requirement(42)
async def test_every_guarantee_holds_after_every_step_of_these_seeds(simulator: Simulator) -> None:
    if SEED or SECONDS:
        pytest.skip("make simulate chooses other seeds")
    ended: dict[str, int] = {}
    for seed in SEEDS:
        outcome = await simulator.run(seed)
        await demand(simulator, outcome)
        for state, n in outcome.ended.items():
            ended[state] = ended.get(state, 0) + n
    # Faults must not keep everything from happening: every kind of end is among them, and most executions succeed.
    assert ended["succeeded"] > 30 * len(SEEDS), ended
    assert {"failed", "timed_out", "lost", "skipped"} <= ended.keys(), ended


async def test_a_seed_always_does_the_same(simulator: Simulator) -> None:
    first, second = [await simulator.run(7) for _ in range(2)]
    assert first.trace == second.trace and first.ended == second.ended


@pytest.mark.skipif(not (SEED or SECONDS), reason="make simulate runs it")
async def test_no_other_seed_fails(simulator: Simulator) -> None:
    if SEED:
        await demand(simulator, await simulator.run(int(SEED)))
        return
    held, failed = await search(simulator, random.SystemRandom().randrange(1 << 32), SECONDS)
    print(f"{held} seeds held")
    assert failed is None, str(failed)


async def test_a_failing_run_is_shortened_to_the_steps_that_matter(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rescue takes executions of living sessions.
    broken = q("orphans").replace("s.ended_at IS NOT NULL AND ", "")
    monkeypatch.setattr("mainspring.store.sessions.q", lambda name: broken if name == "orphans" else q(name))
    failed = await simulator.run(8)
    short = await simulator.shrink(failed, most_runs=20)
    what = "only executions of ended sessions are lost"
    assert what in str(failed.error) and what in str(short.error)
    assert len(short.steps) < len(failed.trace) * 0.6, short
    assert f"make simulate SEED={failed.seed}" in str(short)
    again = await simulator.run(short.seed, short.steps, heal=False)
    assert again.error == short.error
