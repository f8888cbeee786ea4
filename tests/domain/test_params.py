"""Parameters: declared with types and defaults, checked when they are given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.domain.params import Param, declaration_problems, defaults, given_problems

NONE = frozenset[str]()
PARAMS = {"region": Param("string", default="eu"), "count": Param("integer"), "any": Param(default=None)}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"count": 1}, {}),
        ({"count": 2.0, "region": "us", "any": [1]}, {}),
        ({}, {"/params/count": "the parameter 'count' is required"}),
        ({"count": "1"}, {"/params/count": "the parameter 'count' is an integer, and string was given"}),
        ({"count": True}, {"/params/count": "the parameter 'count' is an integer, and boolean was given"}),
        ({"count": 1.5}, {"/params/count": "the parameter 'count' is an integer, and number was given"}),
        ({"count": 1, "region": None}, {"/params/region": "the parameter 'region' is a string, and null was given"}),
        ({"count": 1, "regoin": "us"}, {"/params/regoin": "unknown parameter 'regoin'"}),
    ],
)
def test_given(given: dict[str, Any], found: dict[str, str]) -> None:
    assert {p.pointer: p.message for p in given_problems(PARAMS, NONE, given)} == found


def test_a_slip_of_the_fingers_gets_a_hint() -> None:
    (problem,) = given_problems(PARAMS, NONE, {"count": 1, "regoin": 1})
    assert problem.hint == "did you mean 'region'?"


def test_a_job_that_declares_nothing_takes_anything_its_templates_need() -> None:
    assert given_problems({}, NONE, {"x": 1}) == []
    assert [p.message for p in given_problems({}, frozenset(("who",)), {})] == ["the parameter 'who' is required"]
    assert given_problems(PARAMS, frozenset(("who",)), {"count": 1, "who": 2}) == []
    assert given_problems(PARAMS, NONE, {"count": 1, "day": "x"}, frozenset(("day",))) == []


def test_a_default_outside_its_type_is_refused() -> None:
    (problem,) = declaration_problems({"n": Param("integer", default="x")}, NONE, scheduled=False)
    assert problem.pointer == "/params/n/default"
    (problem,) = declaration_problems({"a b": Param()}, NONE, scheduled=False)
    assert "is not a name" in problem.message


def test_no_default_and_a_default_of_null_are_different() -> None:
    assert defaults(PARAMS) == {"region": "eu", "any": None}
    for param in PARAMS.values():
        assert msgspec.json.decode(msgspec.json.encode(param), type=Param) == param


def test_what_may_be_given_can_be_listed() -> None:
    size = {"size": Param("integer", enum=(1, 2))}
    assert given_problems(size, NONE, {"size": 2}) == []
    (problem,) = given_problems(size, NONE, {"size": 3})
    assert problem.message == "the parameter 'size' is one of 1, 2, and 3 was given"
    assert given_problems({"x": Param(enum=(1,))}, NONE, {"x": True}) != [], "true is not 1"
    (problem,) = declaration_problems({"n": Param("integer", enum=(1, "two"))}, NONE, scheduled=False)
    assert problem.pointer == "/params/n/enum"
    (problem,) = declaration_problems({"n": Param("integer", default=3, enum=(1, 2))}, NONE, scheduled=False)
    assert problem.pointer == "/params/n/default"
