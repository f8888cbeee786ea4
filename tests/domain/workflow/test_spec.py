"""What is right and wrong with a workflow, before anything is written."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.task import HttpTask, PythonTask
from mainspring.domain.workflow import condition
from mainspring.domain.workflow.plan import compile_workflow, topological
from tests.support.runs import NOOP, spec

HTTP = {"kind": "http", "url": "http://x/", "method": "POST"}


def problems(steps: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        compile_workflow(spec("w", steps, **more))
    return [(p.pointer, p.message) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ({"a": {"needs": ["b"]}, "b": {"needs": ["a"]}}, "a cycle: a → b → a"),
        ({"a": {"needs": ["a"]}}, "a cycle: a → a"),
        (
            {"z": {}, "c": {"needs": ["b", "z"]}, "b": {"needs": ["a"]}, "a": {"needs": ["c"]}, "d": {"needs": ["a"]}},
            "a cycle: c → b → a → c",
        ),
    ],
)
def test_a_cycle_is_refused_and_named(steps: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as caught:
        compile_workflow(spec("w", steps))
    assert caught.value.code == "cycle"
    message = caught.value.problems[0].message
    if named.count("→") < 3:
        assert message == named
    else:  # any of its steps may come first, but each is behind the one it needs
        names = message.removeprefix("a cycle: ").split(" → ")
        assert names[0] == names[-1] and len(names) == 4
        assert all(steps[later]["needs"].count(earlier) for earlier, later in itertools.pairwise(names))


@pytest.mark.requirement(99)
def test_the_order_has_each_step_after_all_it_needs() -> None:
    plan = compile_workflow(
        spec("w", {"d": {"needs": ["b", "c"]}, "b": {"needs": ["a"]}, "c": {"needs": ["a"]}, "a": {}})
    )
    order = [plan.steps[n].name for n in plan.order]
    assert order.index("a") < order.index("b") < order.index("d") and order.index("c") < order.index("d")


def test_the_order_of_many_steps_is_found_quickly_and_without_recursion() -> None:
    size = 20_000
    assert topological([[n - 1] if n else [] for n in range(size)]) == tuple(range(size))


@pytest.mark.parametrize(
    ("steps", "pointer", "part"),
    [
        ({"a": {"needs": ["extrct"]}, "extract": {}}, "/steps/a/needs/0", "unknown step 'extrct'"),
        ({"a": {}, "b": {"needs": ["a", "a"]}}, "/steps/b/needs/1", "named twice"),
        ({"a-b": {}}, "/steps/a-b", "not a step name"),
        ({"a": {"task": NOOP, "wait": "1m"}}, "/steps/a", "several actions: task and wait"),
        ({"a": {"when": "1 +"}}, "/steps/a/when", "not an expression"),
        ({"a": {"when": "stps.x.result > 1"}}, "/steps/a/when", "'stps' is unknown"),
        ({"a": {"when": ""}}, "/steps/a/when", "empty"),
        ({"a": {"when": "(" * 40 + "1" + ")" * 40}}, "/steps/a/when", "nested"),
        ({"a": {"when": "'" + "x" * 2000 + "' == ''"}}, "/steps/a/when", "characters"),
        ({"a": {}, "b": {"when": "steps.a.result > 1"}}, "/steps/b", "does not come before"),
        ({"a": {"when": "steps.nobody.result > 1"}}, "/steps/a", "unknown step 'nobody'"),
        ({"a": {"when": "params.day == 'mon'"}}, "/steps/a/when", "unknown parameter 'day'"),
        ({"a": {"task": {**HTTP, "body": "{{params.day}}"}}}, "/steps/a/task", "unknown parameter 'day'"),
        ({"a": {"task": {**HTTP, "body": "{{stps.b.result}}"}}}, "/steps/a/task/body", "is not known"),
        ({"a": {"task": {**HTTP, "url": "ftp://x"}}}, "/steps/a/task/url", "can't be called"),
        ({"a": {"timeout": "soon"}}, "/steps/a/timeout", "soon"),
        ({"a": {"wait": "-3"}}, "/steps/a/wait", ""),
        ({"a": {"max_parallel": 3}}, "/steps/a/max_parallel", "belongs to a step with map"),
        ({"a": {"rule": "all_done"}}, "/steps/a/needs", "needs no step"),
        ({"a": {"approval": {"scope": "king"}}}, "/steps/a/approval/scope", "not a scope"),
        ({"a": {"approval": {}, "map": "params.x"}}, "/steps/a/map", "belongs to a task"),
        ({"a": {"params": {"x": 1}}}, "/steps/a/params", "another workflow"),
        ({"a": {"concurrency": {"key": "k-{{params.x}}", "limit": 1}}}, "/steps/a/concurrency/key", "params"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(steps: dict[str, Any], pointer: str, part: str) -> None:
    found = problems(steps)
    assert any(p == pointer and part in message for p, message in found), found


def test_a_default_of_the_wrong_type_is_refused() -> None:
    assert problems({"a": {}}, params={"n": {"type": "integer", "default": "x"}})[0][0] == "/params/n/default"


def test_a_scheduled_workflow_needs_defaults_for_its_params() -> None:
    assert problems({"a": {}}, params={"n": {}}, schedule={"every": "1h"})[0][0] == "/params/n"


def test_a_step_without_anything_to_do_is_refused() -> None:
    assert problems({"a": {"task": None}})[0] == ("/steps/a", "the step has no action")


def test_what_a_task_takes_from_its_run_becomes_params() -> None:
    call = {**HTTP, "url": "http://x/{{params.day}}/{{fire_at}}", "body": {"n": ["{{ steps.a.result.rows }}"]}}
    plan = compile_workflow(spec("w", {"a": {}, "b": {"needs": ["a"], "task": call}}, params={"day": {}}))
    job = plan.steps[1].job
    assert job is not None and isinstance(job.task, HttpTask)
    assert job.task.url == "http://x/{{params.day}}/{{fire_at}}"
    assert job.task.body == {"n": ["{{params.steps_a_result_rows}}"]}
    assert plan.steps[1].inputs == {"day": "{{params.day}}", "steps_a_result_rows": "{{steps.a.result.rows}}"}
    assert plan.wanted == {0}


def test_a_function_gets_values_of_the_run_as_arguments() -> None:
    call = {"kind": "python", "function": "app:load", "args": {"part": "{{item}}", "fast": True}}
    plan = compile_workflow(spec("w", {"a": {}, "b": {"needs": ["a"], "map": "steps.a.result", "task": call}}))
    job = plan.steps[1].job
    assert job is not None and isinstance(job.task, PythonTask)
    assert job.task.args == {"fast": True} and plan.steps[1].inputs == {"part": "{{item}}"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("steps.a.result.rows > 2", True),
        ("params.day in ['mon', 'tue']", True),
        ("steps.a.state == 'succeeded' && size(steps.a.result.list) == 2", True),
        ("steps.a.result.list.exists(x, x == 9)", False),
    ],
)
def test_conditions_are_evaluated(text: str, value: bool) -> None:
    values = {"steps": {"a": {"state": "succeeded", "result": {"rows": 3, "list": [1, 2]}}}, "params": {"day": "mon"}}
    assert condition.condition_problem(text) is None
    assert condition.holds(text, values) is value


@pytest.mark.parametrize("text", ["steps.a.result", "steps.b.result > 1", "1 / 0 == 1"])
def test_a_condition_without_a_truth_value_says_so(text: str) -> None:
    with pytest.raises(condition.ConditionError):
        condition.holds(text, {"steps": {"a": {"result": 3}}})
