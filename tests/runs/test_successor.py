"""A step whose success leads to one other: both in one statement, and what happened meanwhile still counts."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mainspring.intake import runs as run_actions
from mainspring.store import doctor, results
from mainspring.store.db import Database
from tests.support.runs import NOT_NOW, TENANT, RunBench, states

pytestmark = pytest.mark.anyio

CALL = {"kind": "http", "url": "http://x/", "method": "POST", "body": {"n": "{{steps.b.result.n}}"}}
READS: dict[str, Any] = {"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["b"], "task": CALL}}
CHAIN: dict[str, Any] = {"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["b"]}, "d": {"needs": ["c"]}}


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often that statement was used, and whether it changed anything."""
    found: list[bool] = []
    real = results.settle_with_successor

    async def watched(*given: Any, **named: Any) -> Any:
        row = await real(*given, **named)
        found.append(row is not None)
        return row

    monkeypatch.setattr(results, "settle_with_successor", watched)
    return found


async def until_b(bench: RunBench, steps: dict[str, Any] = CHAIN, **more: Any) -> Any:
    """The first step has ended by the long way, so what follows is known; b is claimed."""
    run = await bench.begin("chain", steps, **more)
    await bench.end(await bench.claim())
    return run, await bench.claim()


async def test_a_chain_goes_link_by_link(bench: RunBench, linked: list[bool]) -> None:
    run = await bench.begin("chain", CHAIN)
    await bench.work()
    found = await bench.get(run)
    assert found.state == "succeeded" and bench.log == ["a", "b", "c", "d"]
    assert states(found) == dict.fromkeys("abcd", "succeeded")
    assert linked == [True, True], "b to c, c to d; nobody knew a, and nothing follows d"


async def test_what_a_step_gave_reaches_the_next(bench: RunBench, linked: list[bool]) -> None:
    _, rows = await until_b(bench, READS)
    await bench.end(rows, results={"b": {"n": [7]}})
    ((name, row),) = await bench.claim()
    assert (name, row["params"]) == ("c", {"steps_b_result_n": [7]}) and linked == [True]


async def test_what_is_missing_for_the_next_is_told_as_ever(bench: RunBench, linked: list[bool]) -> None:
    run, rows = await until_b(bench, READS)
    await bench.end(rows, results={"b": {}})
    found = await bench.get(run)
    assert found.state == "failed" and "does not exist" in (found.steps[2].reason or "") and not linked


async def test_a_condition_that_is_false_skips_as_ever(bench: RunBench, linked: list[bool]) -> None:
    steps = {**CHAIN, "c": {"needs": ["b"], "when": "steps.b.result.n > 3"}}
    run, rows = await until_b(bench, steps)
    await bench.end(rows, results={"b": {"n": 1}})
    assert states(await bench.get(run))["c"] == "skipped" and not linked


async def test_what_was_skipped_meanwhile_does_not_begin(bench: RunBench, linked: list[bool]) -> None:
    run, rows = await until_b(bench)
    await run_actions.skip(bench.runs, run.run_id, "c", "not today", tenant=TENANT, by="a new user")
    await bench.end(rows)
    assert linked == [False]
    await bench.work()
    found = await bench.get(run)
    assert bench.log == ["a", "b", "d"] and found.state == "succeeded"


async def test_a_cancelled_run_begins_nothing(bench: RunBench, linked: list[bool]) -> None:
    run, rows = await until_b(bench)
    await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user")
    await bench.end(rows)
    assert linked == [False]
    found = await bench.get(run)
    assert found.state == "cancelled" and states(found)["c"] == "cancelled"


async def test_a_result_that_nobody_waits_for_changes_nothing(bench: RunBench, linked: list[bool]) -> None:
    run, ((name, row),) = await until_b(bench)
    late = {**row, "attempt": row["attempt"] + 1}
    await bench.end([(name, late)])
    assert linked == [False]
    assert states(await bench.get(run)) == {"a": "succeeded", "b": "running", "c": "blocked", "d": "blocked"}
    await bench.end([(name, row)])
    await bench.work()
    assert (await bench.get(run)).state == "succeeded" and bench.log == ["a", "b", "c", "d"]


async def test_a_second_try_goes_on_too(bench: RunBench, linked: list[bool]) -> None:
    again = {"retries": {"max": 2, "base": 0, "jitter": "none"}}
    run, rows = await until_b(bench, {**CHAIN, "b": {"needs": ["a"], **again}})
    await bench.end(rows, lambda _: "failed")
    await bench.promote()
    await bench.work()
    assert (await bench.get(run)).state == "succeeded" and bench.log == ["a", "b", "b", "c", "d"]
    assert linked == [True, True]


async def test_steps_that_end_elsewhere_in_between(fresh: Database, linked: list[bool]) -> None:
    """Two processes settle in turn: what one remembers is checked against what the other did."""
    one, two = RunBench(fresh), RunBench(fresh)
    run, rows = await until_b(one)
    two.session_id = one.session_id
    for settler in (two, one, two):
        await settler.end(rows)
        rows = await one.claim()
    assert not rows and one.log == ["a", "b", "c", "d"]
    assert (await one.get(run)).state == "succeeded"
    assert not await _doctored(fresh)


async def _doctored(database: Database) -> list[Any]:
    async with database.connection() as connection:
        diagnosis = await doctor.examine(connection)
    return [f for f in diagnosis.findings if f.check.startswith(("I1 ", "I6", "I9", "I13", "I21"))]


@pytest.mark.parametrize("seed", range(4))
async def test_people_change_their_minds_while_links_are_written(
    fresh: Database, linked: list[bool], seed: int
) -> None:
    rng = random.Random(seed)
    bench, people = RunBench(fresh), RunBench(fresh)
    await bench.apply("chain", CHAIN)
    runs = [await bench.start("chain") for _ in range(20)]
    for row in await bench.claim():
        await bench.end([row])
    for _ in range(4):
        rows = await bench.claim()
        meddling = []
        for run in rng.sample(runs, 10):
            step = rng.choice("bcd")
            match rng.randrange(3):
                case 0:
                    meddling.append(run_actions.cancel(people.runs, run.run_id, tenant=TENANT, by="a new user"))
                case 1:
                    meddling.append(
                        run_actions.skip(people.runs, run.run_id, step, "so", tenant=TENANT, by="a new user")
                    )
                case _:
                    meddling.append(
                        run_actions.force_complete(
                            people.runs, run.run_id, step, "so", None, tenant=TENANT, by="a new user"
                        )
                    )
        settling = [RunBench(fresh) for _ in rows]
        for other in settling:
            other.session_id, other.settler._successors = bench.session_id, bench.settler._successors
        work = [other.end([row]) for other, row in zip(settling, rows, strict=True)]
        mixed = [*meddling, *work]
        rng.shuffle(mixed)
        for outcome in await asyncio.gather(*mixed, return_exceptions=True):
            assert outcome is None or not isinstance(outcome, BaseException) or isinstance(outcome, NOT_NOW), outcome
    await bench.work()
    await bench.timers.sweep()
    for run in runs:
        found = await bench.get(run)
        assert found.state in ("succeeded", "cancelled", "failed", "partial") and found.open_steps == 0
    assert True in linked
    assert not await _doctored(fresh)
