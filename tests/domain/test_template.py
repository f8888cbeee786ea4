"""Names in double braces: filled in once, never read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.template import NAMES, fill, param_names, render, strings, unknown_names

VALUES = {name: f"<{name}>" for name in NAMES} | {"params.who": "you", "params.bad": "{{job}}"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("{{job}}", "<job>"),
        ("{{ job }}/{{\tattempt }}", "<job>/<attempt>"),
        ("--day={{execution_date}}", "--day=<execution_date>"),
        ("{{params.who}}{{params.who}}", "youyou"),
        ("{{params.bad}}", "{{job}}"),
        ("{{{job}}}", "{<job>}"),
        ("{job} {{", "{job} {{"),
        ("${job:-{{job}}}", "${job:-<job>}"),
    ],
)
def test_filled_in(text: str, filled: str) -> None:
    assert render(text, VALUES) == filled


def test_a_parameter_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match=r"params\.nobody"):
        render("{{params.nobody}}", VALUES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{{fire_at}} {{params.any_thing}}", []),
        ("{{fireat}}", [("fireat", "did you mean {{fire_at}}?")]),
        ("{{x}}", [("x", "known: fire_at, execution_date, execution_id, attempt, job, run_id, params.<name>")]),
        ("{{params.}}", None),
        ("{{params.a.b}}", None),
        ("{{__class__}}", None),
        ("{{ }}", None),
    ],
)
def test_what_nothing_fills_in_is_told(text: str, found: list[tuple[str, str]] | None) -> None:
    if found is None:
        assert len(unknown_names(text)) == 1
    else:
        assert unknown_names(text) == found


class Everything(dict[str, str]):
    """Has every parameter."""

    def __missing__(self, name: str) -> str:
        assert name in NAMES or name.startswith("params.")
        return "v"


@given(st.text(alphabet="{} ajob.prms", max_size=40))
def test_what_passes_the_check_is_filled_in_without_an_error(text: str) -> None:
    if not unknown_names(text):
        render(text, Everything())


TYPED: dict[str, object] = {"attempt": 2, "params.n": 5, "params.list": [1, {"a": None}], "params.no": None, "job": "j"}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ("{{params.n}}", 5),
        ("{{ params.list }}", [1, {"a": None}]),
        ("{{params.no}}", None),
        (" {{params.n}}", " 5"),
        ("{{params.n}}{{params.n}}", "55"),
        ("is {{params.list}}", 'is [1,{"a":null}]'),
        ("{{params.no}}!", "!"),
        ({"a": ["{{attempt}}", "no. {{attempt}}"], "{{job}}": True}, {"a": [2, "no. 2"], "{{job}}": True}),
        (3.5, 3.5),
        (None, None),
    ],
)
def test_in_json_a_name_by_itself_keeps_its_type(value: object, filled: object) -> None:
    assert fill(value, TYPED) == filled


def test_what_is_filled_in_is_not_read_again() -> None:
    assert fill({"a": "{{params.x}}"}, {"params.x": {"b": "{{job}}"}, "job": "no"}) == {"a": {"b": "{{job}}"}}


def test_every_string_is_checked_with_its_place() -> None:
    found = dict(strings({"a": ["x", {"b": "y"}], "c": 1}, "/body"))
    assert found == {"/body/a/0": "x", "/body/a/1/b": "y"}
    assert list(param_names("{{params.a}} {{job}} {{ params.b }}")) == ["a", "b"]
