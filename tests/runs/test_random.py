"""Random workflows with random failures, against a model that knows nothing of counters: the same states."""

from __future__ import annotations

import itertools
import os
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring import wire
from mainspring.store.db import Database
from tests.support.runs import RunBench, states

pytestmark = pytest.mark.anyio

TOGETHER = 10
ROUNDS = 100 if "MAINSPRING_LONG" in os.environ else 6
RULES = ("all_succeeded", "all_done", "any_succeeded", "none_failed", "always")
numbers = itertools.count()


def model(steps: dict[str, Any], fails: set[str]) -> tuple[dict[str, str], str]:
    """What should become of each step, looked at again and again until nothing changes; and of the run."""
    found: dict[str, str] = {}
    while len(found) < len(steps):
        for name, step in steps.items():
            if name in found or any(need not in found for need in step.get("needs", [])):
                continue
            before = [found[need] for need in step.get("needs", [])]
            found[name] = ("failed" if name in fails else "succeeded") if _may_start(step, before) else "skipped"
    needed = {need for step in steps.values() for need in step.get("needs", [])}
    if "failed" not in found.values():
        return found, "succeeded"
    ends = [found[name] for name in steps if name not in needed]
    return found, "partial" if "succeeded" in ends else "failed"


def _may_start(step: dict[str, Any], before: list[str]) -> bool:
    match step.get("rule", "all_succeeded"):
        case "all_done" | "always":
            return True
        case "any_succeeded":
            return not before or "succeeded" in before
        case "none_failed":
            return "failed" not in before
    return set(before) <= {"succeeded"} or step.get("on_upstream_failure") == "go_on"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    size = draw(st.integers(1, 9))
    steps: dict[str, Any] = {}
    for number in range(size):
        needs = [f"s{n}" for n in range(number) if draw(st.booleans())]
        step: dict[str, Any] = {"needs": needs} if needs else {}
        if needs:
            rule = draw(st.sampled_from((*RULES, "go_on")))
            step |= {"on_upstream_failure": "go_on"} if rule == "go_on" else {"rule": rule}
        steps[f"s{number}"] = step
    return steps, {name for name in steps if draw(st.integers(0, 3)) == 0}


@settings(
    max_examples=ROUNDS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(chosen=st.lists(graphs(), min_size=TOGETHER, max_size=TOGETHER), seed=st.integers(0, 2**32))
async def test_random_workflows_end_as_the_model_says(
    database: Database, chosen: list[tuple[dict[str, Any], set[str]]], seed: int
) -> None:
    bench, rng = RunBench(database), random.Random(seed)
    names = [f"random-{next(numbers)}" for _ in chosen]
    runs = [await bench.begin(name, steps) for name, (steps, _) in zip(names, chosen, strict=True)]
    fails: set[UUID] = set()
    for run, (_, bad) in zip(runs, chosen, strict=True):
        fails |= await executions_of(database, run, bad)
    held: list[tuple[str, Any]] = []
    while True:
        held += await bench.claim()
        if not held:
            break
        # One or some at a time, in any order and mixed over the runs, as workers would tell of them.
        rng.shuffle(held)
        now, held = held[: (n := rng.choice((1, rng.randint(1, len(held)))))], held[n:]
        for outcome in ("failed", "succeeded"):
            ended = [row for row in now if (row[1]["execution_id"] in fails) == (outcome == "failed")]
            if ended:
                await bench.end(ended, lambda _, outcome=outcome: outcome)  # type: ignore[misc]
    for run, (steps, bad) in zip(runs, chosen, strict=True):
        found = await bench.get(run)
        assert (states(found), found.state) == model(steps, bad)
        assert found.open_steps == 0


async def executions_of(database: Database, run: wire.Run, names: set[str]) -> set[UUID]:
    """The executions that these steps will be."""
    numbers = [number for number, step in enumerate(run.steps) if step.name in names]
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT execution_id FROM run_steps WHERE run_id = $1 AND step = ANY ($2)", run.run_id, numbers
        )
    return {row["execution_id"] for row in rows}
