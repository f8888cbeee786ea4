"""When settling lags, outcomes come first and releases later, and a run gone wrong keeps none back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from mainspring.domain.workflow.run import ExecutionEnd
from mainspring.intake import runs as run_actions
from mainspring.results import settle
from mainspring.results.settle import Settler
from mainspring.store.db import Database
from mainspring.store.doctor import CHECKS, examine
from tests.support.runs import RunBench, states

pytestmark = pytest.mark.anyio

FAN: dict[str, Any] = {
    "a": {},
    **{f"b{n}": {"needs": ["a"]} for n in range(8)},
    "end": {"needs": [f"b{n}" for n in range(8)]},
}


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def outcomes(bench: RunBench) -> int:
    async with bench.database.connection() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM history WHERE trigger = 'step'"))


async def test_outcomes_are_written_before_steps_are_released(bench: RunBench) -> None:
    bench.settler._backlog_limit = -1  # as if ten thousand more results waited
    run = await bench.begin("chain", {"a": {}, "b": {"needs": ["a"]}})
    await bench.end(await bench.claim())
    assert await outcomes(bench) == 1 and states(await bench.get(run)) == {"a": "running", "b": "blocked"}
    other = await bench.begin("other", {"x": {}})
    bench.settler._backlog_limit = settle.BACKLOG_LIMIT
    await bench.end(await bench.claim())
    assert states(await bench.get(run)) == {"a": "succeeded", "b": "running"}, "the backlog has drained"
    assert (await bench.get(other)).state == "succeeded"
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_the_releases_follow_though_the_server_died(bench: RunBench) -> None:
    bench.settler._backlog_limit = -1
    run = await bench.begin("chain", {"a": {}, "b": {"needs": ["a"]}})
    await bench.end(await bench.claim())
    bench.settler = Settler(bench.database, bench.definitions, bench.settler._announcer)
    await bench.timers.sweep()
    assert states(await bench.get(run)) == {"a": "succeeded", "b": "running"}
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_outcomes_are_written_though_releasing_fails(bench: RunBench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await bench.begin("chain", {"a": {}, "b": {"needs": ["a"]}})
    rows = await bench.claim()

    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the plan can't be read")

    with monkeypatch.context() as patched:
        patched.setattr(settle, "advance", broken)
        await bench.end(rows)
    assert await outcomes(bench) == 1 and states(await bench.get(run)) == {"a": "running", "b": "blocked"}
    await bench.timers.sweep()
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_one_run_that_can_not_go_on_does_not_keep_the_others(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.settler._backlog_limit = -1
    sick, well = await bench.begin("sick", {"a": {}}), await bench.begin("well", {"a": {}})
    await bench.end(await bench.claim())
    (step,) = (await bench.get(sick)).steps

    advance_ended = run_actions.advance_ended

    async def partly(transactions: run_actions.RunTransactions, ends: Any) -> None:
        if any(e.execution_id == step.execution_id for e in ends):
            raise RuntimeError("sick")
        await advance_ended(transactions, ends)

    monkeypatch.setattr(run_actions, "advance_ended", partly)
    await bench.timers.sweep()
    assert ((await bench.get(sick)).state, (await bench.get(well)).state) == ("running", "succeeded")


class Counting(Settler):
    """Counts the ends of steps that their runs heard of later."""

    later = 0

    async def _advance_deferred(self, endings: Sequence[ExecutionEnd]) -> set[UUID]:
        self.later += len(endings)
        return await super()._advance_deferred(endings)


@pytest.mark.requirement(111)
async def test_a_pile_of_results_is_settled_consistently(bench: RunBench) -> None:
    """Many results at once and a low bound: releases wait until the pile is gone, and all comes to the same end."""
    settler = Counting(bench.database, bench.definitions, bench.settler._announcer, backlog_limit=3)
    bench.settler = settler
    await bench.apply("fan", FAN)
    runs = [(await bench.start("fan")).run_id for _ in range(24)]
    while rows := await bench.claim():
        await asyncio.gather(*[bench.end([row]) for row in rows])
    assert {(await bench.get(run)).state for run in runs} == {"succeeded"}
    assert await outcomes(bench) == 24 * 10, "each step once"
    assert settler.later >= 64, "whatever was in a batch while others waited"
    async with bench.database.connection() as connection:
        found = (await examine(connection)).checks
    assert {found[name] for name in (CHECKS["invariant_i13"], CHECKS["invariant_i21"])} == {"ok"}
