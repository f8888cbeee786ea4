"""The job decorator: its declaration, and the unchanged function."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import date
from typing import Any

import msgspec
import pytest

import mainspring as ms
from mainspring.domain.job import JobSpec, check
from mainspring.sdk import job as declaring
from tests.worker.app import jobs as app


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaring, "declared", {})


def test_a_declared_function_is_what_it_was() -> None:
    assert inspect.isfunction(app.report)
    assert (app.report.__name__, app.report.__doc__) == ("report", "Return the report of a day.")
    with pytest.raises(ms.NotExecuting):
        app.report(date(2026, 11, 15))


def test_what_it_declares() -> None:
    spec = app.report.declaration.spec
    assert spec == {
        "name": "report",
        "task": {"kind": "python", "function": f"{app.__name__}:report", "args": {"day": "{{execution_date}}"}},
        "params": {"region": {"type": "string", "default": "eu"}},
        "schedule": {"cron": "0 2 * * *", "timezone": "Europe/Berlin"},
        "retries": {"max": 1},
        "timeout": "5m",
        "queue": "long",
        "description": "Return the report of a day.",
    }
    check(msgspec.convert(spec, JobSpec))
    assert app.report.declaration.file == app.__file__


@ms.job(name="other-name", schedule=ms.every("1h"), misfire="skip", metadata={"team": "ops"})
async def several(
    count: int,
    ratio: float = 0.5,
    names: list[str] | None = None,
    flag: bool = False,
    free: Any = None,
    **others: Any,
) -> None: ...


def test_parameters_have_the_types_of_the_function() -> None:
    spec = several.declaration.spec
    assert spec["params"] == {
        "count": {"type": "integer"},
        "ratio": {"type": "number", "default": 0.5},
        "names": {"default": None},
        "flag": {"type": "boolean", "default": False},
        "free": {"default": None},
    }
    assert (spec["name"], spec["schedule"], spec["misfire"]) == ("other-name", {"every": "1h"}, {"policy": "skip"})
    assert inspect.iscoroutinefunction(several)


def positional(a: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (positional, {}, "is positional-only"),
        (lambda: None, {}, "only functions and classes at the top level of a module"),
        (test_what_it_declares, {"tz": "UTC"}, "tz= needs schedule="),
    ],
)
def test_mistakes_are_told_at_once(function: Any, options: dict[str, Any], says: str) -> None:
    if function.__name__ == "<lambda>":

        def function() -> None: ...  # inside another function

    with pytest.raises(ValueError, match=says):
        ms.job(**options)(function)


def test_two_functions_of_one_name_are_refused() -> None:
    ms.job(name="same")(takes_nothing)
    ms.job(name="same")(takes_nothing)
    with pytest.raises(ValueError, match="two jobs are named 'same'"):
        ms.job(name="same")(takes_nothing_either)


def takes_nothing() -> None: ...


def takes_nothing_either() -> None: ...


def test_outside_an_execution_progress_is_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_PROGRESS", raising=False)
    assert list(ms.track(iter("abc"))) == ["a", "b", "c"]
    ms.report_progress(1, 2)


def test_a_program_of_a_shell_task_has_a_context_and_progress(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name, value in (("EXECUTION_ID", "e"), ("JOB", "j"), ("ATTEMPT", "3"), ("FIRE_AT", "2026-11-15T01:00:00Z")):
        monkeypatch.setenv(f"MAINSPRING_{name}", value)
    found = ms.context()
    assert (found.job, found.attempt, found.idempotency_key, found.fire_at.hour) == ("j", 3, "e", 1)
    monkeypatch.setenv("MAINSPRING_PROGRESS", str(tmp_path / "told"))
    ms.report_progress(410, 1000, "a\nb")
    assert (tmp_path / "told").read_text() == "410/1000 a b\n"


def test_importing_us_imports_nothing_else() -> None:
    code = "import sys; import mainspring; print([m for m in sys.modules if m.startswith('mainspring.')])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'jobb'"):
        _ = ms.jobb  # type: ignore[attr-defined]
