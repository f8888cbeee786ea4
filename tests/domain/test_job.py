"""What a job may say, beyond its types."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, NoopTask, ShellTask, check
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.task import PythonTask


def job(**spec: Any) -> JobSpec:
    return JobSpec(**{"name": "a", "task": NoopTask(), **spec})


def pointers(spec: JobSpec) -> list[str]:
    try:
        check(spec)
    except Invalid as error:
        problems = error.problems
    else:
        return []
    assert all(p.message and p.hint for p in problems)
    return [p.pointer for p in problems]


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "9", "x" * 128])
def test_names(name: str) -> None:
    assert pointers(job(name=name)) == []


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "ä", "a\n", "x" * 129, "a\0"])
def test_what_is_no_name(name: str) -> None:
    assert pointers(job(name=name)) == ["/name"]


@pytest.mark.parametrize("queue", ["", "Short", "a.b", "a\n", "x" * 64])
def test_what_is_no_queue(queue: str) -> None:
    assert pointers(job(queue=queue)) == ["/queue"]


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({"timeout": 0}, "/timeout"),
        ({"timeout": "x"}, "/timeout"),
        ({"timeout": -1}, "/timeout"),
        ({"retries": RetryPolicy(base="x")}, "/retries/base"),
        ({"retries": RetryPolicy(cap="1 month")}, "/retries/cap"),
        ({"delivery": "at_most_once"}, "/retries/max"),
        ({"delivery": "effectively_once"}, "/delivery"),
        ({"delivery": "effectively_once", "task": ShellTask(argv=("a",))}, "/delivery"),
        ({"retries": RetryPolicy(on=())}, "/retries/on"),
        ({"retries": RetryPolicy(only_exit_codes=())}, "/retries/only_exit_codes"),
        ({"retries": RetryPolicy(only_exit_codes=(1,), never_exit_codes=(2,))}, "/retries/never_exit_codes"),
        ({"retries": RetryPolicy(only_errors=("A",), never_errors=("B",))}, "/retries/never_errors"),
        ({"retries": RetryPolicy(only_errors=("OSError", "not a type"))}, "/retries/only_errors/1"),
        ({"task": ShellTask(argv=("",))}, "/task/argv/0"),
        ({"task": ShellTask(argv=("a", "b\0"))}, "/task/argv/1"),
        ({"task": ShellTask(argv=("a", "b"), shell=True)}, "/task/argv"),
        ({"task": ShellTask(argv=("a",), env={"A-B": "x"})}, "/task/env"),
        ({"task": ShellTask(argv=("a",), env={"MAINSPRING_TOKEN": "x"})}, "/task/env"),
        ({"task": ShellTask(argv=("a",), env={"A": "\0"})}, "/task/env"),
        ({"task": ShellTask(argv=("{{no}}",))}, "/task/argv/0"),
    ],
)
def test_what_is_refused(spec: dict[str, Any], pointer: str) -> None:
    assert pointers(job(**spec)) == [pointer]


def test_no_delay_between_retries_is_fine() -> None:
    assert pointers(job(retries=RetryPolicy(base=0, cap=0))) == []


def test_at_most_once_without_retries_is_fine() -> None:
    assert pointers(job(delivery="at_most_once", retries=RetryPolicy(max=0))) == []


def test_effectively_once_is_for_functions() -> None:
    assert pointers(job(delivery="effectively_once", task=PythonTask(function="app:pay"))) == []


@pytest.mark.parametrize(
    ("schedule", "overlap", "policy"),
    [
        (None, None, "allow"),
        (ScheduleSpec(at="2090-01-01T00:00:00Z"), None, "allow"),
        (ScheduleSpec(every=5), None, "skip"),
        (ScheduleSpec(cron="* * * * *"), None, "skip"),
        (ScheduleSpec(every=5), "allow", "allow"),
        (None, "skip", "skip"),
    ],
)
def test_recurring_jobs_do_not_overlap_unless_told(schedule: Any, overlap: Any, policy: str) -> None:
    assert job(schedule=schedule, overlap=overlap).overlap_policy == policy


def test_labels_and_resources_fit_into_the_index_of_lines() -> None:
    many = {f"label-{number}": "x" * 63 for number in range(40)}
    assert pointers(job(labels=dict(list(many.items())[:20]))) == []
    assert pointers(job(labels=many)) == ["/labels"]
    assert pointers(job(labels={f"l{number}": "x" for number in range(300)})) == ["/labels"]
    assert pointers(job(resources={f"licence-{number}-{'x' * 50}": 1 for number in range(20)})) == []
