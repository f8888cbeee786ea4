"""Waits: for so long, or until an instant, written out or taken from the run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.workflow.plan import compile_workflow
from mainspring.domain.workflow.spec import Wait, WorkflowSpec
from mainspring.domain.workflow.wait import WaitError, end_of, wait_problems
from mainspring.manifest import read_workflows, write_workflow


def wait(**fields: Any) -> Wait:
    return msgspec.convert(fields, Wait)


@pytest.mark.parametrize(
    ("fields", "values", "end"),
    [
        ({"for": "2h"}, {}, (7200.0, None)),
        ({"for": 90}, {}, (90.0, None)),
        ({"for": "{{params.pause}}"}, {"params": {"pause": "10m"}}, (600.0, None)),
        ({"until": "2027-03-01T09:00:00Z"}, {}, (None, datetime(2027, 3, 1, 9, tzinfo=UTC))),
        (
            {"until": "2027-07-01T09:00:00", "timezone": "Europe/Berlin"},
            {},
            (None, datetime(2027, 7, 1, 7, tzinfo=UTC)),
        ),
        (
            {"until": "{{steps.plan.result.at}}"},
            {"steps": {"plan": {"result": {"at": "2027-03-01T09:00:00+01:00"}}}},
            (None, datetime(2027, 3, 1, 8, tzinfo=UTC)),
        ),
        (
            {"until": "{{params.day}}T09:00:00Z"},
            {"params": {"day": "2027-03-01"}},
            (None, datetime(2027, 3, 1, 9, tzinfo=UTC)),
        ),
    ],
)
def test_when_a_wait_ends(fields: dict[str, Any], values: dict[str, Any], end: object) -> None:
    assert end_of(wait(**fields), values) == end
    assert list(wait_problems("/wait", wait(**fields))) == []


@pytest.mark.parametrize("given", [None, [1], {"a": 1}, "soon", "2027-13-01T00:00:00Z", "2027-03-01", 2**62, 1e300])
def test_what_the_run_gives_may_be_wrong(given: Any) -> None:
    for field in ("for", "until"):
        with pytest.raises(WaitError):
            end_of(wait(**{field: "{{params.when}}"}), {"params": {"when": given}})


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, "/steps/nap/wait"),
        ({"for": "1h", "until": "2027-03-01T09:00:00Z"}, "/steps/nap/wait"),
        ({"for": "soon"}, "/steps/nap/wait/for"),
        ({"for": 2**62}, "/steps/nap/wait/for"),
        ({"until": "soon"}, "/steps/nap/wait/until"),
        ({"until": "2027-03-01T09:00:00", "timezone": "Europe/Berlyn"}, "/steps/nap/wait/timezone"),
        ({"until": "{{params.nope}}"}, "/steps/nap/wait"),
        ({"until": "{{nope}}"}, "/steps/nap/wait/until"),
        ({"until": "{{steps.later.result}}"}, "/steps/nap"),
    ],
)
def test_what_is_wrong_is_said_when_the_workflow_is_written(fields: dict[str, Any], pointer: str) -> None:
    steps = {"nap": {"wait": fields}, "later": {"task": {"kind": "noop"}, "needs": ["nap"]}}
    spec = msgspec.convert({"name": "w", "steps": steps}, WorkflowSpec)
    with pytest.raises(Invalid) as caught:
        compile_workflow(spec)
    assert pointer in [problem.pointer for problem in caught.value.problems]


def test_waits_are_read_from_yaml_and_written_again() -> None:
    text = """
    kind: Workflow
    metadata: {name: w}
    spec:
      params: {at: {type: string}}
      steps:
        short: {wait: 10m}
        nap: {wait: {for: 2h}}
        until: {wait: {until: "{{params.at}}", timezone: Europe/Berlin}}
        fixed: {wait: {until: 2027-03-01T09:00:00Z}}
    """
    (spec,) = read_workflows(text)
    compile_workflow(spec)
    assert spec.steps["fixed"].waits == Wait(until="2027-03-01T09:00:00Z")
    assert read_workflows(write_workflow(spec)) == [spec]
