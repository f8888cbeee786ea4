"""Workflows in Python are the same as in YAML."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

import mainspring as ms
from mainspring.cli.workflows import _declared
from mainspring.domain.plan import compile_workflow
from mainspring.domain.task import PythonTask
from mainspring.domain.workflow import WorkflowSpec
from mainspring.manifest import read_workflows, write_workflow

EXAMPLES = Path(__file__).parents[2] / "examples"


def named(spec: WorkflowSpec) -> WorkflowSpec:
    """With functions by the names of their jobs, as a manifest may call them too."""
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
        "first": (), "sign": ("first",), "second": ("first",), "gate": ("sign",), "rest": ("second",),
    }  # fmt: skip
    assert spec.outputs == {"rows": "{{steps.first.result.rows}}"}
    assert spec.params["region"].default == "eu"
    compile_workflow(spec)


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two steps"):

        @ms.workflow()
        def twice(flow: ms.Flow) -> None:
            flow.wait("a", 1)
            flow.wait("a", 1)
