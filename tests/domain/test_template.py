"""Names in double braces: filled in once, never read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.template import NAMES, render, unknown_names

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
