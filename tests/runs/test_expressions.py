"""Conditions, maps and templates of runs that would cost too much, or have no value."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.domain.workflow.condition import ConditionError, condition_problem, is_cheap
from mainspring.killable import Limits
from mainspring.runs.expressions import Expressions
from mainspring.store.db import Database
from tests.support.clocks import ManualClock
from tests.support.runs import RunBench, states

pytestmark = pytest.mark.anyio

COSTLY = "result.all(x, result.all(y, result.size() > 0 || x == y))"


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


@pytest.mark.parametrize(
    "text",
    [
        "a.//\nmap(x, x.// b\nmap(y, y.//\nmap(z, z)))",
        "a.map // c\n(x, x.map//\n (y, y.map /**/(z, z)))".replace("/**/", "//\n"),
        "a.map(x, x.map(y, y. map(z, z)))",
        "'\\''.map(x, x.map(y, y.map(z, z)))",
        "r'\\'.map(x, x.map(y, y.map(z, z)))",
        "'''it's'''.map(x, x.map(y, y.map(z, z)))",
    ],
)
def test_loops_are_counted_behind_comments_and_strings(text: str) -> None:
    assert "more than 2 loops" in (condition_problem(text) or "")


@pytest.mark.parametrize("text", ["'a.map(x, a.map(y, a.map(z, z)))' == ''", "true // a.map( b.map( c.map( d.map("])
def test_loops_in_strings_and_comments_do_not_count(text: str) -> None:
    assert condition_problem(text) is None


def test_what_is_cheap_depends_on_the_values() -> None:
    small, large = {"result": [1, 2]}, {"result": list(range(1000))}
    assert is_cheap("result.filter(x, x > 1).size() == 1", small)
    assert not is_cheap("result.filter(x, x > 1).size() == 1", large)
    assert is_cheap("result.size() > 3", large)
    assert not is_cheap("result == ''", {"result": "x" * 1_000_000})
    assert not is_cheap("result.matches('((a{50}){50}){2}')", {"result": ""})
    assert not is_cheap("+".join(["result"] * 100), {"result": "x" * 10_000})


async def test_a_costly_expression_is_killed_and_not_evaluated_again_for_a_while() -> None:
    clock = ManualClock()
    expressions = Expressions(clock, Limits(cpu_s=0.2, wall_s=10.0))
    values: dict[str, Any] = {"result": list(range(3000))}
    turns = 0
    work = asyncio.ensure_future(expressions.evaluated([COSTLY, "result.size() == 3000"], values))
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    found = await work
    assert list(found) == [COSTLY], "the other one is cheap"
    assert isinstance(found[COSTLY], ConditionError) and "CPU time" in str(found[COSTLY])
    assert turns > 20
    assert "a short while ago" in str((await expressions.evaluated([COSTLY], values))[COSTLY])
    clock.at += 601
    assert "takes too much" in str((await expressions.evaluated([COSTLY], values))[COSTLY])
    assert await expressions.evaluated(["result.map(x, x * 2)[5]"], values | {"result": list(range(200))}) == {
        "result.map(x, x * 2)[5]": 10
    }
    expressions.close()


async def test_a_run_with_a_costly_condition_fails_that_step_alone(bench: RunBench) -> None:
    steps: dict[str, Any] = {
        "list": {},
        "poison": {"needs": ["list"], "when": f"steps.list.{COSTLY.replace('result', 'steps.list.result')[11:]}"},
        "other": {"needs": ["list"], "when": "steps.list.result.filter(x, x > 2990).size() == 9"},
    }
    run = await bench.begin("poison", steps)
    await bench.work(results={"list": list(range(3000))})
    found = await bench.get(run)
    assert states(found) == {"list": "succeeded", "poison": "failed", "other": "succeeded"}
    assert "CPU time" in str(found.steps[1].reason)


@pytest.mark.parametrize("place", ["9" * 5000, "²", "99"])
async def test_a_template_with_a_place_that_no_list_has_fails_its_step(bench: RunBench, place: str) -> None:
    echo = {"task": {"kind": "python", "function": "app:f", "args": {"x": f"{{{{steps.a.result.{place}}}}}"}}}
    run = await bench.begin("places", {"a": {}, "b": {"needs": ["a"], **echo}})
    await bench.work(results={"a": [1, 2]})
    found = await bench.get(run)
    assert states(found) == {"a": "succeeded", "b": "failed"}
    assert "does not exist" in str(found.steps[1].reason)


async def test_an_item_without_a_value_fails_alone_also_when_it_is_released_later(bench: RunBench) -> None:
    each = {
        "needs": ["a"],
        "map": "steps.a.result",
        "max_parallel": 1,
        "max_failed": 1,
        "workflow": "inner",
        "params": {"x": "{{item.x}}"},
    }
    await bench.apply("inner", {"one": {}}, params={"x": {"default": 1}})
    run = await bench.begin("items", {"a": {}, "each": each})
    await bench.work(results={"a": [{"x": 1}, {}, {"x": 3}]})
    found = await bench.get(run, items=True)
    assert found.state == "succeeded"
    assert bench.log.count("one") == 2


async def test_results_repeated_in_params_are_bounded(bench: RunBench) -> None:
    args = {f"x{n}": "{{steps.a.result}}" for n in range(30)}
    task = {"task": {"kind": "python", "function": "app:f", "args": args}}
    run = await bench.begin("repeated", {"a": {}, "b": {"needs": ["a"], **task}})
    await bench.work(results={"a": "x" * 200_000})
    found = await bench.get(run)
    assert states(found) == {"a": "succeeded", "b": "failed"}
    assert "2,000,000 characters" in str(found.steps[1].reason)


async def test_results_repeated_in_all_items_are_bounded(bench: RunBench) -> None:
    task = {"kind": "python", "function": "app:f", "args": {"x": "{{steps.a.result.text}}", "n": "{{item}}"}}
    each = {"needs": ["a"], "map": "steps.a.result.items", "task": task}
    run = await bench.begin("repeated-items", {"a": {}, "b": each})
    await bench.work(results={"a": {"text": "x" * 100_000, "items": list(range(1000))}})
    found = await bench.get(run)
    assert states(found) == {"a": "succeeded", "b": "failed"}
    assert "max_parallel" in str(found.steps[1].reason)
