"""Names in double braces: filled in once, never read again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.template import NAMES, fill, param_names, render, strings, templates, unknown_names

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
        ("{{x}}", [("x", f"known: {', '.join(NAMES)}, params.<name>, secret:<name>")]),
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
    found = {str(at): text for at, text in strings({"a": ["x", {"b": "y"}], "c": 1}, "/body")}
    assert found == {"/body/a/0": "x", "/body/a/1/b": "y"}
    assert list(param_names("{{params.a}} {{job}} {{ params.b }}")) == ["a", "b"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("a{}/", max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("k/", max_size=2), inner, max_size=4),
    max_leaves=20,
)


def strings_by_recursion(value: Any, pointer: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(pointer, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in strings_by_recursion(item, f"{pointer}/{key}")]


@given(JSON)
def test_strings_are_found_in_order_with_their_pointers(value: Any) -> None:
    found = [(str(path), text) for path, text in strings(value, "/body")]
    assert found == strings_by_recursion(value, "/body")
    with_template = any("{{" in text for _, text in found)
    assert [(str(path), text) for path, text in templates(value, "/body")] == (found if with_template else [])
