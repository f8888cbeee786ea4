"""Workflows declared in Python equal those in YAML."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

import mainspring as ms
from mainspring.cli.workflows import _declared
from mainspring.domain.errors import Invalid
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.manifest import read_workflows, write_workflow

EXAMPLES = Path(__file__).parents[2] / "examples"


def named(spec: WorkflowSpec) -> WorkflowSpec:
    """Return the workflow with functions named like their jobs, as a manifest may name them too."""
    steps = {
        name: msgspec.structs.replace(
            step, task=msgspec.structs.replace(step.task, function=step.task.function.rpartition(":")[2])
        )
        if isinstance(step.task, PythonTask)
        else step
        for name, step in spec.steps.items()
    }
    return msgspec.structs.replace(spec, steps=steps)


def test_python_and_yaml_export_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (written,) = _declared(str(EXAMPLES / "etl_flow.py"))
    (read,) = read_workflows((EXAMPLES / "etl.yaml").read_text())
    assert write_workflow(named(written)) == write_workflow(read)
    assert named(written) == read
    compile_workflow(written)


def test_a_result_that_is_passed_on_makes_a_need() -> None:
    @ms.workflow(schedule=ms.every("1h"), tz="Europe/Berlin")
    def hourly(flow: ms.Flow, region: str = "eu") -> dict[str, object]:
        first = flow.task({"kind": "noop"}, name="first")
        flow.approval("sign", expires="1d", after=[first])
        second = flow.shell("echo", first["rows"], region, name="second")
        flow.event("gate", "go", after=["sign"])
        flow.wait("rest", "10m", after=[second])
        return {"rows": first.rows}

    spec = hourly.spec
    assert {name: step.needs for name, step in spec.steps.items()} == {
        "first": (),
        "sign": ("first",),
        "second": ("first",),
        "gate": ("sign",),
        "rest": ("second",),
    }
    assert spec.outputs == {"rows": "{{steps.first.result.rows}}"}
    assert spec.params["region"].default == "eu"
    compile_workflow(spec)


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two steps"):

        @ms.workflow()
        def twice(flow: ms.Flow) -> None:
            flow.wait("a", 1)
            flow.wait("a", 1)


def test_a_result_inside_a_text_makes_a_need_too() -> None:
    @ms.workflow(name="texts")
    def texts(flow: ms.Flow) -> None:
        found = flow.shell("list", name="list")
        flow.shell("echo", f"{found.rows} rows", name="told")
        flow.shell("echo", "many", name="many", when=f"{found.rows.expression} > 10")
        flow.shell("echo", f"{flow.upstream(found)}", name="how")
        flow.shell("echo", f"{flow.item}", name="first", map=found[0].parts)
        flow.shell("echo", f"{flow.item}", name="fixed", map=["a", "b"])
        flow.shell("echo", f"{flow.iteration}", name="loop", repeat={"until": f"{found.rows.expression} > 0", "max": 3})

    steps = texts.spec.steps
    assert {name: step.needs for name, step in steps.items()} == {
        "list": (),
        "told": ("list",),
        "many": ("list",),
        "how": ("list",),
        "first": ("list",),
        "fixed": (),
        "loop": ("list",),
    }
    assert (steps["first"].map, steps["fixed"].map) == ("steps.list.result[0].parts", '["a", "b"]')
    compile_workflow(texts.spec)


def test_an_approval_has_its_message() -> None:
    @ms.workflow(name="asking")
    def asking(flow: ms.Flow) -> None:
        flow.approval("sign", expires="1h", scope="admin", message="Is it good?")

    approval = asking.spec.steps["sign"].approval
    assert approval is not None
    assert (approval.expires, approval.scope, approval.message) == ("1h", "admin", "Is it good?")


def test_what_does_not_fit_is_told_with_its_step_and_place() -> None:
    @ms.workflow(name="wrong")
    def wrong(flow: ms.Flow) -> None:
        flow.shell("true", name="fine")
        flow.shell("true", name="odd", rule="all_ok", after=["fine"])

    with pytest.raises(
        Invalid, match=r"the workflow wrong \(.*test_workflow.py, line \d+\): /steps/odd/rule: unknown rule 'all_ok' \("
    ):
        _ = wrong.spec
    with pytest.raises(TypeError, match="must take a Flow"):
        ms.workflow(name="none")(lambda: None)
