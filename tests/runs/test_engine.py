"""Runs against a real database, driven by hand."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from mainspring import ports
from mainspring.domain.errors import Invalid
from mainspring.domain.execution import is_step
from mainspring.domain.workflow.run import ExecutionEnd, StepRef, StepRelease
from mainspring.runs.advance import advance
from mainspring.runs.plans import PlanCache
from mainspring.store import run_steps, runs
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from mainspring.views import executions as execution_views
from tests.support.runs import TENANT, RunBench, states

pytestmark = pytest.mark.anyio

DIAMOND: dict[str, Any] = {"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["a"]}, "d": {"needs": ["b", "c"]}}


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def test_each_execution_says_which_step_of_which_run_it_is(bench: RunBench) -> None:
    await bench.apply("inner", {"x": {}})
    run = await bench.begin("outer", {"each": {"map": "[1, 2]"}, "sub": {"workflow": "inner"}, "plain": {}})
    await bench.work(lambda name: "failed" if name == "plain" else "succeeded")
    inner = (await bench.get(run)).steps[1].execution_id
    found = (await execution_views.list_executions(bench.database, tenant=TENANT)).items
    assert {(e.title, None if e.step is None else e.step.run_id) for e in found} == {
        ("outer", None),
        ("outer / each[0]", run.run_id),
        ("outer / each[1]", run.run_id),
        ("outer / plain", run.run_id),
        ("outer / sub: inner", run.run_id),
        ("inner / x", inner),
    }
    (failed,) = (
        e
        for e in (await execution_views.list_executions(bench.database, tenant=TENANT, states=["failed"])).items
        if e.step
    )
    assert failed.title == "outer / plain"


@pytest.mark.requirement(98)
async def test_in_a_diamond_the_sides_run_in_parallel_and_the_end_once(bench: RunBench) -> None:
    run = await bench.begin("diamond", DIAMOND)
    assert states(run) == {"a": "running", "b": "blocked", "c": "blocked", "d": "blocked"}
    await bench.end(await bench.claim())
    both = await bench.claim()
    assert sorted(name for name, _ in both) == ["b", "c"]
    await bench.end(both[:1])
    assert await bench.claim() == []
    await bench.end(both[1:])
    await bench.work()
    assert bench.log.count("d") == 1
    found = await bench.get(run)
    assert found.state == "succeeded" and found.open_steps == 0
    assert set(states(found).values()) == {"succeeded"}


async def test_a_run_is_an_execution_of_its_workflow(bench: RunBench) -> None:
    run = await bench.begin("one", {"a": {}})
    head = await execution_views.get(bench.database, run.run_id, tenant=TENANT)
    assert (head.state, head.job, head.trigger) == ("running", "one", "manual")
    await bench.work()
    head = await execution_views.get(bench.database, run.run_id, tenant=TENANT)
    assert head.state == "succeeded" and head.finished_at is not None
    step = (await bench.get(run)).steps[0]
    assert step.execution_id is not None and is_step(step.execution_id) and not is_step(run.run_id)
    assert (await execution_views.get(bench.database, step.execution_id, tenant=TENANT)).trigger == "step"


@pytest.mark.parametrize("turn", range(5))
async def test_two_last_parents_that_end_at_once_release_the_child_once(bench: RunBench, turn: int) -> None:
    width = 8
    steps: dict[str, Any] = {f"p{n}": {} for n in range(width)}
    run = await bench.begin("race", steps | {"child": {"needs": list(steps)}})
    rows = await bench.claim()
    # Each in a settler of its own, so that every one is a transaction on a connection of its own.
    others = [RunBench(bench.database) for _ in rows]
    for other in others:
        other.session_id = bench.session_id
    await asyncio.gather(*[other.end([row]) for other, row in zip(others, rows, strict=True)])
    (child,) = await bench.claim()
    assert child[0] == "child"
    await bench.end([child])
    assert (await bench.get(run)).state == "succeeded"


async def test_a_second_run_is_not_affected_by_the_first(bench: RunBench) -> None:
    first = await bench.begin("twice", {"a": {}, "b": {"needs": ["a"]}})
    second = await bench.start("twice")
    rows = await bench.claim()
    await bench.end([row for row in rows if _run_of(row, first.steps)], lambda _: "failed")
    assert states(await bench.get(first)) == {"a": "failed", "b": "skipped"}
    assert states(await bench.get(second)) == {"a": "running", "b": "blocked"}
    await bench.end([row for row in rows if not _run_of(row, first.steps)])
    await bench.work()
    assert (await bench.get(second)).state == "succeeded"


def _run_of(row: tuple[str, Any], steps: list[Any]) -> bool:
    return row[1]["execution_id"] in {step.execution_id for step in steps}


async def test_an_edit_during_a_run_does_not_touch_it(bench: RunBench) -> None:
    run = await bench.begin("edited", {"a": {}, "b": {"needs": ["a"]}})
    workflow = await bench.apply("edited", {"a": {}, "x": {"needs": ["a"]}, "y": {"needs": ["x"]}})
    assert workflow.version == 2
    await bench.work()
    found = await bench.get(run)
    assert found.version == 1 and states(found) == {"a": "succeeded", "b": "succeeded"}
    newer = await bench.start("edited")
    await bench.work()
    assert states(await bench.get(newer)) == {"a": "succeeded", "x": "succeeded", "y": "succeeded"}


async def test_the_same_again_changes_nothing(bench: RunBench) -> None:
    first = await bench.apply("same", DIAMOND)
    assert (await bench.apply("same", DIAMOND)).version == first.version == 1


async def test_a_failed_step_is_tried_again_before_its_run_hears_of_it(bench: RunBench) -> None:
    retried = {"retries": {"max": 1, "base": 0, "jitter": "none"}}
    run = await bench.begin("retried", {"a": retried, "b": {"needs": ["a"]}})
    await bench.end(await bench.claim(), lambda _: "failed")
    assert states(await bench.get(run))["a"] == "running"
    await bench.promote()
    await bench.work()
    assert bench.log == ["a", "a", "b"]
    assert (await bench.get(run)).state == "succeeded"


@pytest.mark.requirement(101)
@pytest.mark.parametrize(
    ("more", "expected", "run_state"),
    [
        ({}, "skipped", "failed"),
        ({"on_upstream_failure": "go_on"}, "succeeded", "partial"),
        ({"rule": "all_done"}, "succeeded", "partial"),
        ({"rule": "any_succeeded"}, "succeeded", "partial"),
        ({"rule": "none_failed"}, "skipped", "failed"),
        ({"rule": "always"}, "succeeded", "partial"),
    ],
)
async def test_what_follows_a_failure_is_the_rule_of_the_step_behind(
    bench: RunBench, more: dict[str, Any], expected: str, run_state: str
) -> None:
    run = await bench.begin("ruled", {"good": {}, "bad": {}, "behind": {"needs": ["good", "bad"], **more}})
    await bench.work(lambda name: "failed" if name == "bad" else "succeeded")
    found = await bench.get(run)
    assert states(found)["behind"] == expected
    assert found.state == run_state


async def test_a_skip_goes_down_a_long_chain(bench: RunBench) -> None:
    steps: dict[str, Any] = {"s0": {}} | {f"s{n}": {"needs": [f"s{n - 1}"]} for n in range(1, 60)}
    run = await bench.begin("chain", steps)
    await bench.work(lambda name: "failed" if name == "s1" else "succeeded")
    found = await bench.get(run)
    assert found.state == "failed"
    assert [s.state for s in found.steps] == ["succeeded", "failed"] + ["skipped"] * 58


@pytest.mark.requirement(106)
@pytest.mark.parametrize(("rows", "taken", "left"), [(5, "many", "none"), (0, "none", "many")])
async def test_a_branch_is_taken_by_a_result(bench: RunBench, rows: int, taken: str, left: str) -> None:
    run = await bench.begin(
        "branches",
        {
            "count": {},
            "many": {"needs": ["count"], "when": "steps.count.result.rows > 0"},
            "none": {"needs": ["count"], "when": "steps.count.result.rows == 0"},
            "after": {"needs": ["many", "none"], "rule": "none_failed"},
        },
    )
    await bench.work(results={"count": {"rows": rows}})
    found = await bench.get(run)
    assert states(found) == {"count": "succeeded", taken: "succeeded", left: "skipped", "after": "succeeded"}
    assert found.state == "succeeded"


async def test_a_condition_on_what_is_not_there_fails_the_step_and_says_so(bench: RunBench) -> None:
    run = await bench.begin("missing", {"a": {}, "b": {"needs": ["a"], "when": "steps.a.result.rows > 0"}})
    await bench.work(results={"a": {"lines": 1}})
    step = (await bench.get(run)).steps[1]
    assert step.state == "failed" and step.reason is not None and "rows" in step.reason


@pytest.mark.requirement(113)
async def test_a_result_travels_to_the_steps_behind_with_its_type(bench: RunBench) -> None:
    shell = {"kind": "noop"}
    call = {
        "kind": "http",
        "url": "http://x/{{steps.a.result.path}}",
        "method": "POST",
        "body": {"rows": "{{steps.a.result.rows}}"},
    }
    run = await bench.begin(
        "typed", {"a": {"task": shell}, "b": {"needs": ["a"], "task": call}}, params={"day": {"default": "mon"}}
    )
    await bench.end(await bench.claim(), results={"a": {"path": "p", "rows": [1, 2]}})
    ((name, row),) = await bench.claim()
    assert name == "b" and row["params"] == {"steps_a_result_path": "p", "steps_a_result_rows": [1, 2]}
    assert (await bench.get(run)).state == "running"


@pytest.mark.requirement(107)
async def test_a_loop_runs_until_its_condition_is_true(bench: RunBench) -> None:
    run = await bench.begin("loop", {"poll": {"repeat": {"until": "result.done", "max": 10}}, "b": {"needs": ["poll"]}})
    seen: list[UUID] = []

    def result(row: Any) -> dict[str, bool]:
        seen.append(row["execution_id"])
        return {"done": len(seen) == 4}

    await bench.work(results={"poll": result})
    found = await bench.get(run, items=True)
    assert found.state == "succeeded"
    assert bench.log == ["poll"] * 4 + ["b"]
    assert [s.item for s in found.steps] == [None, 0, 1, 2, 3, None]


async def test_a_loop_that_never_becomes_true_ends(bench: RunBench) -> None:
    run = await bench.begin("bounded", {"poll": {"repeat": {"until": "result.done", "max": 3}}})
    await bench.work(results={"poll": {"done": False}})
    found = await bench.get(run)
    assert bench.log == ["poll"] * 3 and found.state == "failed"
    assert "after 3 times" in (found.steps[0].reason or "")


async def test_a_map_runs_each_item_so_many_at_a_time(bench: RunBench) -> None:
    steps = {
        "list": {},
        "each": {"needs": ["list"], "map": "steps.list.result.parts", "max_parallel": 2, "task": {**_echo("{{item}}")}},
        "sum": {"needs": ["each"], "task": _echo("{{steps.each.result}}")},
    }
    run = await bench.begin("mapped", steps)
    await bench.end(await bench.claim(), results={"list": {"parts": [10, 20, 30, 40, 50]}})
    sizes, items = [], []
    while (rows := await bench.claim()) and rows[0][0] == "each":
        sizes.append(len(rows))
        items += [row["params"]["item"] for _, row in rows]
        await bench.end(rows[:1], results={"each": lambda row: row["params"]["item"] * 2})
        await bench.end(rows[1:], results={"each": lambda row: row["params"]["item"] * 2})
    assert sorted(items) == [10, 20, 30, 40, 50] and max(sizes) <= 2
    assert rows[0][1]["params"] == {"steps_each_result": [20, 40, 60, 80, 100]}
    await bench.end(rows)
    assert (await bench.get(run)).state == "succeeded"


def _echo(text: str) -> dict[str, Any]:
    return {"kind": "http", "url": "http://x/", "method": "POST", "body": text}


@pytest.mark.parametrize(("max_failed", "state"), [(0, "failed"), (1, "succeeded")])
async def test_a_map_may_lose_as_many_items_as_it_says(bench: RunBench, max_failed: int, state: str) -> None:
    steps = {"list": {}, "each": {"needs": ["list"], "map": "steps.list.result", "max_failed": max_failed}}
    run = await bench.begin("lossy", steps)
    await bench.end(await bench.claim(), results={"list": [1, 2, 3]})
    rows = await bench.claim()
    await bench.end(rows[:1], lambda _: "failed")
    await bench.end(rows[1:])
    assert states(await bench.get(run))["each"] == state


@pytest.mark.parametrize(("result", "state"), [([], "succeeded"), ({"a": 1}, "failed"), (None, "failed")])
async def test_a_map_over_nothing_succeeds_and_over_no_list_fails(bench: RunBench, result: Any, state: str) -> None:
    run = await bench.begin("empty", {"list": {}, "each": {"needs": ["list"], "map": "steps.list.result"}})
    await bench.work(results={"list": result})
    assert states(await bench.get(run))["each"] == state


async def test_a_workflow_can_be_a_step(bench: RunBench) -> None:
    await bench.apply(
        "inner",
        {"x": {}, "y": {"needs": ["x"]}},
        params={"n": {"type": "integer"}},
        outputs={"n": "{{params.n}}", "got": "{{steps.x.result}}"},
    )
    outer = {"a": {}, "sub": {"needs": ["a"], "workflow": "inner", "params": {"n": "{{steps.a.result}}"}}}
    run = await bench.begin("outer", {**outer, "z": {"needs": ["sub"], "when": "steps.sub.result.n == 7"}})
    await bench.work(results={"a": 7, "x": "ex"})
    found = await bench.get(run)
    assert found.state == "succeeded" and bench.log == ["a", "x", "y", "z"]
    assert found.steps[1].result == {"n": 7, "got": "ex"}


async def test_who_begins_runs_is_called_when_one_is_a_step(bench: RunBench) -> None:
    await bench.apply("inner", {"x": {}})
    await bench.begin("outer", {"a": {}, "sub": {"needs": ["a"], "workflow": "inner"}})
    async with bench.database.connection() as connection:
        lines, _ = await runs.workflow_lines(connection)
    called = asyncio.Event()
    bus = PostgresBus(bench.database)
    bus.subscribe(
        ports.QUEUED, lambda said: called.set() if int(said.split()[0]) in lines else None, on_gap=lambda: None
    )
    await bus.start()
    try:
        await bus.ready()
        await bench.end(await bench.claim())
        await asyncio.wait_for(called.wait(), 30)
    finally:
        await bus.stop()


async def test_a_workflow_that_contains_itself_comes_to_an_end(bench: RunBench) -> None:
    with pytest.raises(Invalid, match="a cycle: self → self"):
        await bench.apply("self", {"again": {"workflow": "self"}})
    run = await bench.begin("self", {"again": {"workflow": "self", "when": "true"}})
    for _ in range(20):
        await bench.timers.run_due()
    found = await bench.get(run)
    assert found.state == "failed"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"n": "{{params.text}}"}, "inner: the parameter 'n' is an integer, and string was given"),
        ({"n": 1, "m": 2}, "inner: unknown parameter 'm'"),
        ({}, "inner: the parameter 'n' is required"),
    ],
)
async def test_a_workflow_inside_one_gets_only_params_it_has(bench: RunBench, given: dict[str, Any], why: str) -> None:
    await bench.apply("inner", {"x": {}}, params={"n": {"type": "integer"}})
    steps = {"sub": {"workflow": "inner", "params": given}, "behind": {"needs": ["sub"]}}
    run = await bench.begin("outer", steps, params={"text": {"type": "string", "default": "x"}})
    await bench.work()
    found = await bench.get(run)
    assert (found.state, found.steps[0].reason, bench.log) == ("failed", why, [])
    assert found.steps[0].execution_id is not None
    assert (await bench.get(found.steps[0].execution_id)).state == "failed"


async def test_a_failed_run_names_what_failed_and_why_through_all_levels(bench: RunBench) -> None:
    await bench.apply("inner", {"x": {}})
    run = await bench.begin("outer", {"sub": {"workflow": "inner"}, **{f"s{n}": {} for n in range(7)}})
    await bench.work(lambda name: "failed" if name == "x" else "succeeded")
    assert (await bench.get(run)).reason == "sub failed: x failed"
    wide = await bench.begin("wide", {"a": {}, **{f"s{n}": {"needs": ["a"], "rule": "always"} for n in range(7)}})
    await bench.work(lambda _: "timed_out")
    reason = (await bench.get(wide)).reason or ""
    assert reason.startswith("a timed out (nor did s") and reason.endswith(" and 3 more succeed)")


async def test_a_workflow_that_is_not_there_fails_its_step(bench: RunBench) -> None:
    run = await bench.begin("alone", {"sub": {"workflow": "nowhere"}})
    assert run.state == "failed" and "nowhere" in (run.steps[0].reason or "")


async def test_a_step_is_released_once_though_two_decide_to(bench: RunBench) -> None:
    """Releasing checks in the same statement that the step is still blocked."""
    run = await bench.begin("once", {"a": {}})
    again = [StepRelease(StepRef(run.run_id, 0))]
    async with bench.database.transaction() as connection:
        await run_steps.release_steps(connection, releases=again, session_id=None, line_id=None)
    await bench.work()
    async with bench.database.transaction() as connection:
        await run_steps.release_steps(connection, releases=again, session_id=None, line_id=None)
    await bench.work()
    assert bench.log == ["a"] and (await bench.get(run)).state == "succeeded"


async def test_an_end_that_is_reported_twice_is_counted_once(bench: RunBench) -> None:
    """The settler drops repeated results; a sweep that repeats an end after a crash relies on the step itself."""
    run = await bench.begin("twice", {"a": {}, "b": {}})
    (row,) = [row for name, row in await bench.claim() if name == "a"]
    end = [ExecutionEnd(row["execution_id"], "succeeded", None, None)]
    for _ in range(2):
        async with bench.database.transaction() as connection:
            await advance(connection, PlanCache(), end)
    assert states(await bench.get(run)) == {"a": "succeeded", "b": "running"}
    assert (await bench.get(run)).state == "running"
