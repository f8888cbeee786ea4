"""What is said about http and python tasks when their job is saved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec, check, needed_params, task_text
from mainspring.domain.task import HttpTask, PythonTask, expects


def problems(**spec: Any) -> dict[str, tuple[str, str]]:
    found = msgspec.convert({"name": "x", **spec}, JobSpec)
    try:
        check(found)
    except Invalid as error:
        return {problem.pointer: (problem.message, problem.hint) for problem in error.problems}
    return {}


def http(url: str = "https://example.org/", **more: Any) -> dict[str, Any]:
    return {"kind": "http", "url": url, **more}


@pytest.mark.parametrize(
    "task",
    [
        http(),
        http("http://[::1]:8080/x?y={{execution_date}}"),
        http("{{params.url}}"),
        http("https://{{params.host}}/{{params.path}}"),
        http(method="POST", body={"a": ["{{params.x}}", 1]}, headers={"X-A": "b"}, expect=[204, "3xx", "400-404"]),
        {"kind": "python", "function": "app.jobs:report"},
        {"kind": "python", "function": "report", "args": {"day": "{{execution_date}}", "run": "{{run_id}}"}},
    ],
)
def test_fine(task: dict[str, Any]) -> None:
    assert problems(task=task) == {}


@pytest.mark.parametrize(
    ("task", "pointer", "message"),
    [
        (http("ftp://example.org"), "/task/url", "only http and https"),
        (http("example.org"), "/task/url", "only http and https"),
        (http("http:///x"), "/task/url", "names no host"),
        (http("http://me:pw@example.org"), "/task/url", "use a header"),
        (http("http://example.org:99999"), "/task/url", "is not a URL"),
        (http("https://x/{{fireat}}"), "/task/url", "{{fireat}} is not known"),
        (http(method="POST", body={"a": [{"b": "{{zzz}}"}]}), "/task/body/a/0/b", "{{zzz}} is not known"),
        (http(body="x"), "/task/body", "GET has no body"),
        (http(headers={"a b": "c"}), "/task/headers", "is not a header"),
        (http(headers={"a": "c\r\nd: e"}), "/task/headers", "is not a header"),
        (http(headers={"Idempotency-Key": "c"}), "/task/headers", "is set by Mainspring"),
        (http(headers={"mainspring-job": "c"}), "/task/headers", "is set by Mainspring"),
        (http(expect=["2x"]), "/task/expect/0", "is not a status"),
        (http(expect=[99]), "/task/expect/0", "is not a status"),
        (http(timeout="soon"), "/task/timeout", "soon"),
        (http(timeout=0), "/task/timeout", "too short"),
        ({"kind": "python", "function": "app.jobs.report()"}, "/task/function", "is not a function"),
        ({"kind": "python", "function": "f", "args": {"a-b": 1}}, "/task/args", "can't be the name"),
        ({"kind": "python", "function": "f", "args": {"a": "{{x}}"}}, "/task/args/a", "is not known"),
    ],
)
def test_refused_with_a_pointer(task: dict[str, Any], pointer: str, message: str) -> None:
    found = problems(task=task)
    assert list(found) == [pointer]
    assert message in found[pointer][0]
    assert found[pointer][1], "and says what to do"


def test_expected_statuses() -> None:
    task = HttpTask("http://x", expect=(204, "3xx", "400-404"))
    assert [s for s in (200, 204, 299, 300, 399, 400, 404, 405, 500) if expects(task, s)] == [204, 300, 399, 400, 404]


def test_parameters_that_templates_need_are_known() -> None:
    task = HttpTask("http://{{params.host}}/", method="POST", body={"a": ["{{ params.x }} {{job}}"]})
    assert needed_params(task) == {"host", "x"}
    assert needed_params(PythonTask("f", {"a": "{{params.y}}"})) == {"y"}


def test_a_scheduled_job_needs_defaults() -> None:
    task = http("https://{{params.host}}/")
    assert problems(task=task) == {}
    found = problems(task=task, schedule={"every": "1h"})
    assert found["/params/host"][0] == "a schedule gives no parameters, and 'host' has no default"
    given = {"host": {"default": "example.org"}, "n": {"type": "integer"}}
    assert list(problems(task=task, schedule={"every": "1h"}, params=given)) == ["/params/n"]


def test_in_a_few_words() -> None:
    assert task_text(HttpTask("http://x", method="PUT")) == "PUT http://x"
    assert task_text(PythonTask("app:f")) == "app:f()"
