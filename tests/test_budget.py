"""Inputs that once took seconds, or grew without bound: each is linear, bounded or refused."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from mainspring.codec import decode
from mainspring.domain import job, json_schema, template
from mainspring.domain.errors import MAX_PROBLEMS, Invalid
from mainspring.domain.fingerprint import essence, fingerprint
from mainspring.domain.job import JobSpec
from mainspring.domain.limit import key_problems
from mainspring.domain.params import Param, given_problems
from mainspring.domain.suggestion import closest
from mainspring.domain.template import BoundedValues, TooMuchInserted
from mainspring.domain.workflow.folding import Folding
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import MOST_EDGES, MOST_TEMPLATES, WorkflowSpec
from mainspring.web.draw.diff import diff_lines
from mainspring.web.draw.terminal_output import coloured
from tests.support.growth import Pump, finding

NOOP = {"kind": "noop"}


def workflow(steps: dict[str, Any]) -> WorkflowSpec:
    return msgspec.convert({"name": "w", "steps": steps}, WorkflowSpec)


def stem_of(name: str) -> None:
    Folding([name], [[]], [0])


@pytest.mark.parametrize(
    ("call", "pump"),
    [
        pytest.param(stem_of, Pump("s", "1", "_"), id="digits in a step name"),
        pytest.param(stem_of, Pump("s", "1-", "x"), id="numbers in a step name"),
        pytest.param(template.places, Pump("{{", " "), id="blanks in a template"),
        pytest.param(template.places, Pump("", "{{ "), id="open templates"),
        pytest.param(lambda text: key_problems("", text), Pump("{{", " "), id="blanks in a limit key"),
        pytest.param(essence, Pump("", "a."), id="letters before a URL"),
        pytest.param(lambda text: decode(text.encode(), JobSpec), Pump('{"', " - at `", '": 1}'), id="unknown field"),
        pytest.param(coloured, Pump("", "a\rb\n"), id="overwritten lines"),
        pytest.param(coloured, Pump("", "\x1b[1ma"), id="colours"),
        pytest.param(lambda text: closest(text[:40], [text[:40] + "x"] * 9999), Pump("", "a"), id="similar names"),
        pytest.param(lambda text: diff_lines(text.split("a"), text.split("b")), Pump("", "ab c"), id="difference"),
    ],
)
def test_cost_is_linear(call: Any, pump: Pump) -> None:
    assert not finding(call, pump, cap=60_000)


@pytest.mark.parametrize("name", ["a-1", "a--1", "a_1_2", "12", "a1b", "a.1:2-3", "x-", "a1-", "", "é٣"])
def test_a_step_name_loses_its_trailing_numbers(name: str) -> None:
    expected = {"a-1": "a", "a--1": "a-", "a_1_2": "a", "12": "12", "a.1:2-3": "a", "é٣": "é"}.get(name, name)
    assert Folding([name], [[]], [0])._stems == [expected]


def test_fingerprints_stay_the_same() -> None:
    assert essence("GET https://a.b/c?d=1 failed: .http://x, A+ftp://y 1://z") == (
        "GET <url> failed: .<url>, A+<url> <n>:<path>"
    )
    assert fingerprint("x " * 10_000, state="failed") == fingerprint("x " * 10_000, state="failed")


def test_a_schema_of_choices_takes_a_bounded_number_of_checks() -> None:
    choices = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    assert json_schema.schema_problem(choices) is None
    (problem,) = json_schema.problems({"x": 1}, choices, "/settings")
    assert "20,000 checks" in problem.message and problem.pointer == "/settings"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{n}": {} for n in range(3000)}},
        {"enum": list(range(2000))},
        {"type": [["object"]]},
        {"type": {"a": 1}},
        {"maxLength": "x"},
        {"required": [["x"]]},
        {"$ref": {"a": 1}},
    ],
)
def test_a_schema_of_another_shape_is_refused(schema: dict[str, Any]) -> None:
    assert json_schema.schema_problem(schema)


def test_a_problem_does_not_repeat_a_large_value() -> None:
    value = {"x": ["y" * 100_000] * 5}
    found = list(json_schema.problems({"a": value}, {"additionalProperties": {"type": "string"}}, ""))
    assert len(str(found)) < 1000


def test_strings_below_a_long_key_take_no_pointers_of_its_length() -> None:
    task = {"kind": "http", "url": "http://x/", "method": "POST", "body": {"k" * 200_000: ["{{a}}"] * 20_000}}
    spec = msgspec.convert({"name": "x", "task": task}, JobSpec)
    assert not finding(job.problems_of, lambda _: spec, cap=1)
    found = job.problems_of(spec)
    assert 0 < len(found) <= MAX_PROBLEMS and max(len(p.pointer) for p in found) < 1000


def test_many_unknown_parameters_are_a_bounded_answer() -> None:
    declared = {f"p{n}": Param() for n in range(1000)}
    given = {f"q{n}": 1 for n in range(10_000)}
    assert not finding(lambda _: given_problems(declared, frozenset(), given), lambda size: size, cap=1)
    assert len(given_problems(declared, frozenset(), given)) == MAX_PROBLEMS


@pytest.mark.parametrize("back", [2, 30, 5000])
def test_steps_may_read_far_back(back: int) -> None:
    def step(n: int) -> dict[str, Any]:
        echo = {"kind": "shell", "argv": ["echo", f"{{{{steps.s{max(0, n - back)}.result}}}}"]}
        return {"task": echo, "needs": [f"s{n - 1}"]} if n else {"task": NOOP}

    spec = workflow({f"s{n}": step(n) for n in range(5000)})
    assert not finding(compile_workflow, lambda _: spec, cap=1, limit_s=5.0)
    assert len(compile_workflow(spec).steps) == 5000


@pytest.mark.parametrize("needs", ["unknown", "twice", "cycle", "later"])
def test_workflows_are_checked_in_linear_time(needs: str) -> None:
    count = 5000
    steps: dict[str, Any] = {f"s{n}": {"task": NOOP, "needs": [f"s{n - 1}"] if n else []} for n in range(count)}
    echo = {"kind": "shell", "argv": ["echo", "{{steps.s0.result}}"]}
    if needs == "unknown":
        steps = {f"s{n}": {"task": NOOP, "needs": [f"t{n}"]} for n in range(count)}
    elif needs == "twice":
        steps["last"] = {"task": NOOP, "needs": ["s1", "s2"] * 5000}
    elif needs == "cycle":
        steps["s0"]["needs"] = [f"s{count - 1}"]
    else:
        echo["argv"] = ["echo", f"{{{{steps.s{count - 1}.result}}}}"]
        steps |= {f"s{n}": {"task": echo, "needs": [f"s{n - 1}"]} for n in range(2, count - 1)}
    spec = workflow(steps)
    with pytest.raises(Invalid) as caught:
        compile_workflow(spec)
    assert 0 < len(caught.value.problems) <= MAX_PROBLEMS
    assert max(len(p.message) for p in caught.value.problems) < 5000
    assert not finding(lambda _: _compiled(spec), lambda size: size, cap=1, limit_s=5.0)


def _compiled(spec: WorkflowSpec) -> None:
    try:
        compile_workflow(spec)
    except Invalid:
        return


def test_a_workflow_with_too_many_needs_is_refused_at_once() -> None:
    names = [f"s{n}" for n in range(500)]
    steps: dict[str, Any] = {name: {"task": NOOP} for name in names}
    steps |= {f"t{n}": {"task": NOOP, "needs": names} for n in range(MOST_EDGES // 500 + 1)}
    with pytest.raises(Invalid, match="needs together"):
        compile_workflow(workflow(steps))


def test_a_workflow_with_too_many_templates_is_refused_at_once() -> None:
    task = {"kind": "shell", "argv": ["echo", "{{params.a}}" * (MOST_TEMPLATES + 1)]}
    with pytest.raises(Invalid, match="30,001 templates; at most 30,000"):
        compile_workflow(workflow({"a": {"task": task}}))


def test_templates_insert_a_bounded_amount() -> None:
    values = BoundedValues({"params.x": "y" * 100_000})
    with pytest.raises(TooMuchInserted, match="2,000,000 characters"):
        template.fill(["{{params.x}}"] * 30, values)
    assert len(template.render("{{params.x}}{{params.x}}", BoundedValues({"params.x": "y" * 100_000}))) == 200_000


@pytest.mark.parametrize("size", [0, 1, 10, 300, 3000])
def test_a_difference_shows_what_changed(size: int) -> None:
    rng = random.Random(size)
    before = [f"line {n}" for n in range(size)] + ["end"]
    after = [*before]
    at = rng.randrange(len(after))
    after[at] = "changed"
    found = diff_lines(before, after)
    assert [line.text for line in found if line.sign == "+"] == ["changed"]
    assert [line.text for line in found if line.sign == "-"] == [before[at]]
    assert diff_lines(before, before) == []
    assert len(diff_lines(before, [f"other {n}" for n in range(size)])) <= 2010
