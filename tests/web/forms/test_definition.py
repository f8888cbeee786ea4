from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.codec import decode, encode
from mainspring.display.definitions import as_json
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.domain.plugin import PluginTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.task import PythonTask
from mainspring.web.forms.definition import by_field, definition, form_values, plugin_fields
from mainspring.web.forms.fields import PLAIN, SCHEDULE, TASKS
from tests.support.definitions import SPECS

SCHEMA = {
    "type": "object",
    "properties": {
        "statement": {"type": "string", "title": "Statement", "description": "What is asked"},
        "rows": {"type": "integer", "default": 10},
        "mode": {"type": "string", "enum": ["read", "write"]},
        "dry": {"type": "boolean"},
        "more": {"type": "object"},
    },
}
PLUGINS = {"sql": plugin_fields("sql", SCHEMA), "free": plugin_fields("free", {"type": "object"})}


def read(values: dict[str, str], base: JobSpec | None = None) -> JobSpec:
    return decode(encode(definition(values, base, PLUGINS)), JobSpec)


def said(value: Any) -> Any:
    """As one would type it: 90 and "90" are the same duration."""
    if isinstance(value, dict):
        return {name: said(item) for name, item in value.items()}
    return [said(item) for item in value] if isinstance(value, list | tuple) else str(value)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_form_that_is_not_touched_changes_nothing(spec: JobSpec) -> None:
    assert read(form_values(spec, PLUGINS), spec) == spec


@pytest.mark.parametrize("spec", [s for s in SPECS if s.name not in ("shell", "plugin")], ids=lambda spec: spec.name)
def test_a_copy_is_the_same_job(spec: JobSpec) -> None:
    """All but lines in a variable, and what a plug-in's schema does not know: there is no field to carry them."""
    assert said(as_json(read(form_values(spec, PLUGINS)))) == said(as_json(spec))


def test_one_field_changes_one_thing() -> None:
    spec = SPECS[1]
    values = form_values(spec, PLUGINS) | {"queue": "long", "retries": "5"}
    wanted = msgspec.structs.replace(spec, queue="long", retries=RetryPolicy(max=5))
    assert read(values, spec) == wanted


def test_an_empty_field_goes_back_to_the_default() -> None:
    spec = SPECS[6]
    values = form_values(spec, PLUGINS)
    for name in ("concurrency_key", "concurrency_limit", "rate_limit", "rate_per", "rate_burst", "queue", "overlap"):
        values.pop(name, None)
    found = read(values, spec)
    assert (found.concurrency, found.rate, found.queue, found.overlap) == (None, None, None, None)
    assert found.labels == {"zone": "eu"}


def test_another_kind_of_task_keeps_nothing_of_the_old_one() -> None:
    values = form_values(SPECS[3], PLUGINS) | {"kind": "python", "function": "app:g"}
    assert read(values, SPECS[3]).task == PythonTask(function="app:g")
    values |= {"kind": "plugin:sql", "plugin_sql_statement": "select 1", "plugin_sql_rows": "5", "plugin_sql_dry": "1"}
    assert read(values, SPECS[3]).task == PluginTask("sql", {"statement": "select 1", "rows": 5, "dry": True})


def test_every_problem_is_told_at_once_and_at_its_field() -> None:
    values = {
        "job": "x", "kind": "shell", "command": "echo 'open", "env": "NOPE", "priority": "high", "metadata": "{",
        "expression": "", "calendar": "de", "param_0_name": "n", "param_0_type": "integer", "param_0_default": "many",
        "notify_0_to": "ops", "notify_0_factor": "fast",
    }  # fmt: skip
    with pytest.raises(Invalid) as raised:
        definition(values, None, {})
    found, rest = by_field(raised.value.problems, (*PLAIN, *TASKS["shell"], *SCHEDULE))
    assert found.keys() == {"command", "env", "priority", "metadata", "calendar", "params", "notify"}
    assert rest == []


def test_problems_find_the_nearest_field() -> None:
    fields = (*PLAIN, *TASKS["shell"], *SCHEDULE)
    wanted: dict[str, Any] = {
        "/task/argv/3": "command", "/retries/max": "retries", "/rate": "rate_limit", "/labels/zone": "labels",
        "/params/n/default": "params", "/notify/0/to": "notify", "/name": "job",
    }  # fmt: skip
    for pointer, name in wanted.items():
        assert by_field([Problem(pointer, "wrong")], fields)[0].keys() == {name}, pointer
    assert by_field([Problem("", "wrong"), Problem("/", "wrong")], fields)[0] == {}


def test_settings_without_properties_are_one_field() -> None:
    (field,) = PLUGINS["free"]
    assert (field.pointer, field.kind) == ("/task/settings", "json")
    assert [f.kind for f in PLUGINS["sql"]] == ["text", "number", "choice", "flag", "json"]
