"""Runs a seed, and shortens a run that fails."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.simulation.checks import RECORDERS
from tests.simulation.world import Step, Violation, World, plan, reproducible

STEPS = int(os.environ.get("SIMULATE_STEPS", "200"))
SHRINK_RUNS = int(os.environ.get("SIMULATE_SHRINK_RUNS", "120"))


@dataclass
class Outcome:
    """How a run ended; `error` is None if every guarantee held."""

    seed: int
    steps: Sequence[Step]
    error: str | None = None
    trace: list[str] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.steps)
        return (
            f"seed {self.seed}: {self.error}\n{len(self.steps)} steps lead to it:\n{steps}\n"
            f"repeat with: make simulate SEED={self.seed}"
        )


class Simulator:
    """Runs seeds one after the other on one database under a virtual clock."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self._database, self._clock = database, clock

    async def prepare(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(RECORDERS)

    async def run(self, seed: int, steps: Sequence[Step] | None = None, *, heal: bool = True) -> Outcome:
        """Run a seed, or some of its steps. With `heal`, faults end and everything must come to rest."""
        steps = plan(seed, STEPS) if steps is None else steps
        outcome = Outcome(seed, steps)
        with reproducible(seed):
            world = World(self._database, self._clock, seed)
            try:
                await world.begin()
                for step in steps:
                    await world.step(step)
                if heal:
                    await world.heal()
            except Exception as error:
                outcome.error = str(error) if isinstance(error, Violation) else repr(error)
            finally:
                await world.end()
        outcome.trace = world.trace
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT state, count(*) AS n FROM all_executions GROUP BY state")
        outcome.ended = {r["state"]: r["n"] for r in rows}
        return outcome

    async def shrink(self, failed: Outcome, most_runs: int = SHRINK_RUNS) -> Outcome:
        """Leave out steps while the run fails in the same way: halves first, then smaller parts, then single steps."""
        kind, heal, runs = _kind(failed), len(failed.trace) == len(failed.steps), 0
        best = Outcome(failed.seed, list(failed.steps)[: len(failed.trace) + 1], failed.error, failed.trace)
        size = max(1, len(best.steps) // 2)
        while runs < most_runs:
            before, at = len(best.steps), 0
            while at < len(best.steps) and runs < most_runs:
                runs += 1
                tried = await self.run(failed.seed, [*best.steps[:at], *best.steps[at + size :]], heal=heal)
                if tried.error is not None and _kind(tried) == kind:
                    best = tried
                else:
                    at += size
            if size == 1 and len(best.steps) == before:
                break
            size = max(1, size // 2)
        return best


def _kind(outcome: Outcome) -> str:
    """The guarantee that did not hold, without the rows."""
    return (outcome.error or "").partition(":")[0]


async def search(simulator: Simulator, first: int, seconds: float) -> tuple[int, Outcome | None]:
    """Run one seed after the other; return how many held, and the first that did not, shortened."""
    until, held = time.monotonic() + seconds, 0
    while time.monotonic() < until or not held:
        outcome = await simulator.run(first + held)
        if outcome.error is not None:
            return held, await simulator.shrink(outcome)
        held += 1
        await asyncio.sleep(0)
    return held, None
