"""Manifests of every kind are read strictly, and all their problems are named at once."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.manifest import KINDS, STORED, check, manifest_in, typed

EXAMPLES: dict[str, dict[str, Any]] = {
    "Queue": {"cap": 4, "may_help": ["short"]},
    "Calendar": {"dates": ["2026-12-25"], "rules": ["* * SAT,SUN"]},
    "Channel": {"target": {"kind": "slack", "url": STORED}, "events": ["execution.failed"]},
    "AlertRule": {"condition": "dead_letters", "threshold": 50, "for": 60},
    "Job": {"shell": ["echo", "hi"], "schedule": {"cron": "0 2 * * *"}},
    "Workflow": {"steps": {"a": {"shell": ["true"]}, "b": {"container": {"image": "etl:3"}, "needs": ["a"]}}},
    "Blackout": {"schedule": {"cron": "0 2 * * SUN"}, "lasts": "2h", "reason": "backup"},
    "Trigger": {"source": {"kind": "webhook", "scheme": "github"}, "job": "etl"},
    "Reservation": {"start_at": "2030-01-01T00:00:00Z", "end_at": "2030-01-01T06:00:00Z", "slots": 2},
}


def document(kind: str, name: str = "one", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, "spec": spec}


def problems(value: Any) -> list[str]:
    with pytest.raises(Invalid) as error:
        check(manifest_in(value))
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(kind: str) -> None:
    manifest = manifest_in(document(kind, **EXAMPLES[kind]))
    assert manifest.key == (kind, "one")
    assert isinstance(check(manifest), KINDS[kind].type)


def test_all_problems_of_a_job_are_named_at_once() -> None:
    wrong = document("Job", shell=["a"], priority=11, retires={"max": 1}, timeout=[], schedule={"crn": "x"})
    assert [problem.partition(" ")[0] for problem in problems(wrong)] == [
        "/spec/retires:",
        "/spec/schedule/crn:",
        "/spec/priority:",
        "/spec/timeout:",
    ]


def test_the_problems_of_every_step_are_named() -> None:
    steps = {"a": {"shel": ["x"]}, "b": {"shell": "x"}, "c": {"http": 5}}
    assert [problem.partition(":")[0] for problem in problems(document("Workflow", steps=steps))] == [
        "/spec/steps/a/shel",
        "/spec/steps/b/shell",
        "/spec/steps/c/http",
    ]
    steps = {"a": {"shell": ["x"], "rule": "never"}, "b": {"shell": ["x"], "priority": 99}}
    assert [problem.partition(":")[0] for problem in problems(document("Workflow", steps=steps))] == [
        "/spec/steps/a/rule",
        "/spec/steps/b/priority",
    ]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], "a manifest must be a mapping"),
        ({"kind": "Jb", "metadata": {"name": "x"}}, "/kind: unknown kind 'Jb' (did you mean Job?)"),
        ({"metadata": {"name": "x"}}, "/kind: kind is missing"),
        ({"kind": "Job", "spec": {}}, "/metadata: metadata with a name is missing"),
        ({"kind": "Job", "metadata": {"name": "x"}, "spec": []}, "/spec: spec must be a mapping"),
        ({"kind": "Job", "metadata": {"name": "x"}, "status": {}}, "/status: unknown field 'status'"),
        (
            {"kind": "Job", "metadata": {"name": "x"}, "spec": {"shell": ["a"], "name": "y"}},
            "/spec/name: name does not belong in spec",
        ),
        (document("Job", shell=["a"], task={"kind": "noop"}), "/spec/shell: shell and task exclude each other"),
        (document("Job", "x y", shell=["a"]), "/metadata/name: 'x y' is not a job name"),
        (document("Job", task={"kind": "workflow"}), "a workflow can't be written as a job"),
        (
            {"kind": "Queue", "metadata": {"name": "x", "labels": {}}, "spec": {}},
            "/metadata/labels: a Queue has no labels",
        ),
        (document("Queue", may_help=["one"]), "/spec/may_help/0: 'one' is not the name of another queue"),
        (document("AlertRule", condition="dead_letter", threshold=1), "did you mean 'dead_letters'?"),
        (document("Channel", target={"kind": "webhook", "url": "ftp://x"}), "/spec/target/url"),
        (document("Workflow", steps={"a": {"shell": ["x"], "needs": ["b"]}}), "/spec/steps/a"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value: Any, says: str) -> None:
    assert says in "\n".join(problems(value))


def test_short_forms_are_the_long_ones() -> None:
    short: dict[str, dict[str, Any]] = {
        "shell": {"shell": ["a"]},
        "http": {"http": {"url": "https://x"}},
        "python": {"python": "m:f", "args": {"n": 1}},
    }
    short["container"] = {"container": {"image": "i"}}
    long = {
        "shell": {"kind": "shell", "argv": ["a"]},
        "http": {"kind": "http", "url": "https://x"},
        "python": {"kind": "python", "function": "m:f", "args": {"n": 1}},
        "container": {"kind": "container", "image": "i"},
    }
    for name, spec in short.items():
        assert typed(manifest_in(document("Job", **spec))) == typed(manifest_in(document("Job", task=long[name])))


def test_metadata_of_a_job_is_free_and_has_its_name_apart() -> None:
    value = {"kind": "Job", "metadata": {"name": "x", "owner": "me", "labels": {"a": "b"}}, "spec": {"shell": ["a"]}}
    spec = typed(manifest_in(value))
    assert (spec.name, spec.metadata) == ("x", {"owner": "me", "labels": {"a": "b"}})
