"""How a run is shown: the way that decided its duration, what was blocked by what, the timeline of a step, the grid."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.workflow.layout import critical_path, slacks
from mainspring.intake import runs as run_actions
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.runs import TENANT, RunBench

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def ended(
    bench: RunBench, virtual: VirtualClock, after_s: float, *names: str, outcome: str = "succeeded"
) -> None:
    """Claims what is queued, and ends these so much later; the others run on."""
    running: list[Any] = getattr(bench, "running", [])
    running += await bench.claim()
    await virtual.advance(seconds=after_s)
    await bench.end([row for row in running if row[0] in names], lambda _: outcome)
    bench.running = [row for row in running if row[0] not in names]  # type: ignore[attr-defined]


def by_name(run: wire.Run) -> dict[str, wire.RunStep]:
    return {step.name: step for step in run.steps if step.item is None}


async def test_each_step_has_its_instants_and_its_slack(bench: RunBench, virtual: VirtualClock) -> None:
    steps = {"a": {}, "slow": {"needs": ["a"]}, "quick": {"needs": ["a"]}, "end": {"needs": ["slow", "quick"]}}
    run = await bench.begin("diamond", steps)
    await virtual.advance(seconds=5)
    await ended(bench, virtual, 10, "a")
    await ended(bench, virtual, 3, "quick")
    await ended(bench, virtual, 7, "slow")
    await ended(bench, virtual, 2, "end")
    found = await bench.get(run)
    start = found.started_at
    assert start is not None and found.state == "succeeded"
    told = {
        name: [
            (at - start).total_seconds()
            for at in (s.created_at, s.released_at, s.queued_at, s.started_at, s.finished_at)
            if at is not None
        ]
        for name, s in by_name(found).items()
    }
    assert told == {
        "a": [0, 0, 0, 5, 15],
        "slow": [0, 15, 15, 15, 25],
        "quick": [0, 15, 15, 15, 18],
        "end": [0, 25, 25, 25, 27],
    }
    assert {name: (s.critical, s.slack_s) for name, s in by_name(found).items()} == {
        "a": (True, 0),
        "slow": (True, 0),
        "quick": (False, 7),
        "end": (True, 0),
    }
    assert {(s.attempt, s.worker) for s in found.steps} == {(1, "w")}


async def test_a_partial_run_says_which_branches_were_blocked_and_by_what(bench: RunBench) -> None:
    steps = {
        "load": {}, "other": {}, "check": {"needs": ["load"]}, "report": {"needs": ["check"]},
        "both": {"needs": ["check", "other"]}, "fine": {"needs": ["other"]},
        "not": {"needs": ["other"], "when": "false"}, "behind": {"needs": ["not"]},
    }  # fmt: skip
    run = await bench.begin("parts", steps)
    await bench.work(lambda name: "failed" if name == "load" else "succeeded")
    found = await bench.get(run)
    assert (found.state, found.failed, found.blocked) == ("partial", ["load"], ["check", "report", "both"])
    assert {name: s.blocked_by for name, s in by_name(found).items() if s.blocked_by} == {
        "check": ["load"],
        "report": ["load"],
        "both": ["load"],
    }


@pytest.mark.requirement(109)
async def test_a_step_has_a_timeline_of_its_own(bench: RunBench, virtual: VirtualClock) -> None:
    retries = {"retries": {"max": 1, "base": 5, "jitter": "none"}}
    steps: dict[str, Any] = {
        "a": {},
        "b": {"needs": ["a"], **retries},
        "sign": {"approval": {"expires": "1h"}, "needs": ["b"]},
    }
    run = await bench.begin("told", steps)
    await ended(bench, virtual, 10, "a")
    await virtual.advance(seconds=1)
    await ended(bench, virtual, 2, "b", outcome="failed")
    await virtual.advance(seconds=60)
    await bench.promote()
    await virtual.advance(seconds=1)
    await ended(bench, virtual, 3, "b")
    found = await bench.run_views.step_timeline(run.run_id, "b", tenant=TENANT)
    start = (await bench.get(run)).started_at
    assert start is not None
    assert [(e.event, (e.at - start).total_seconds(), e.attempt) for e in found.events] == [
        ("step.created", 0, None),
        ("step.released", 10, None),
        ("execution.queued", 10, None),
        ("execution.started", 11, 1),
        ("execution.retrying", 13, 1),
        ("execution.queued", 73, None),
        ("execution.started", 74, 2),
        ("execution.succeeded", 77, 2),
        ("step.succeeded", 77, None),
    ]
    waiting = await bench.run_views.step_timeline(run.run_id, "sign", tenant=TENANT)
    assert [e.event for e in waiting.events] == ["step.created", "step.waiting"]
    assert waiting.events[1].text is not None and waiting.events[1].text.startswith("until 2026-11-16 13:01:17")
    await run_actions.skip(bench.runs, run.run_id, "sign", "not today", tenant=TENANT, by="a new user")
    waiting = await bench.run_views.step_timeline(run.run_id, "sign", tenant=TENANT)
    assert (waiting.events[-1].event, waiting.events[-1].text) == ("step.skipped", "skipped by a new user: not today")
    with pytest.raises(NotFound):
        await bench.run_views.step_timeline(run.run_id, "nobody", tenant=TENANT)


async def test_the_timeline_of_an_item(bench: RunBench) -> None:
    await bench.apply("mapped", {"each": {"map": "params.parts"}}, params={"parts": {"type": "array"}})
    run = await bench.start("mapped", {"parts": [1, 2]})
    await bench.work()
    whole = await bench.run_views.step_timeline(run.run_id, "each", tenant=TENANT)
    assert [i.item for i in whole.items] == [0, 1] and whole.events[-1].event == "step.succeeded"
    item = await bench.run_views.step_timeline(run.run_id, "each", tenant=TENANT, item=1)
    assert item.step.item == 1 and "execution.succeeded" in [e.event for e in item.events] and item.items == []
    with pytest.raises(NotFound):
        await bench.run_views.step_timeline(run.run_id, "each", tenant=TENANT, item=2)


async def test_the_last_runs_side_by_side(bench: RunBench) -> None:
    await bench.apply("grid", {"a": {}, "b": {"needs": ["a"]}})
    for outcome in ("succeeded", "failed"):
        await bench.start("grid")
        await bench.work(lambda name, outcome=outcome: outcome)  # type: ignore[misc]
    await bench.apply("grid", {"b": {}, "c": {"needs": ["b"]}})
    await bench.start("grid")
    found = await bench.run_views.grid("grid", tenant=TENANT)
    assert found.steps == ["b", "c", "a"]
    assert [(r.state, r.version, r.steps) for r in found.runs] == [
        ("running", 2, ["running", "blocked", None]),
        ("failed", 1, ["skipped", None, "failed"]),
        ("succeeded", 1, ["succeeded", None, "succeeded"]),
    ]
    assert len((await bench.run_views.grid("grid", tenant=TENANT, count=2)).runs) == 2
    with pytest.raises(Invalid):
        await bench.run_views.grid("grid", tenant=TENANT, count=0)
    with pytest.raises(NotFound):
        await bench.run_views.grid("nobody", tenant=TENANT)


async def test_a_run_that_has_not_begun_has_no_timeline(bench: RunBench) -> None:
    await bench.apply("key", {"a": {}}, concurrency={"key": "k", "limit": 1})
    run = await bench.start("key")
    with pytest.raises(Conflict):
        await bench.run_views.step_timeline(run.run_id, "a", tenant=TENANT)


def test_slack_is_what_is_left_of_the_longest_way() -> None:
    needs = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "alone": []}
    took = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0, "alone": 3.0}
    assert slacks(needs, list(needs), took) == {"a": 0, "b": 0, "c": 3, "d": 0, "alone": 4}
    assert critical_path(needs, list(needs), took) == ["a", "b", "d"]
    assert slacks({}, [], {}) == {}
