"""The three-way merge: fields of the file win, dropped fields return to their default, those of others stay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.manifest.three_way import MISSING, at_path, differences, leaves, merge

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.integers(0, 3) | st.sampled_from(["x", "y"]) | st.lists(st.integers(0, 2), max_size=2)
FIELDS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(NAMES, SCALARS, max_size=3),
    lambda inner: st.dictionaries(NAMES, SCALARS | inner.filter(bool), max_size=3),
    max_leaves=8,
)
WHOLE = frozenset({("a", "b"), ("c", "*")})


@pytest.mark.parametrize(
    ("live", "last", "new", "merged"),
    [
        ({"priority": 7}, {}, {"timeout": "1m"}, {"priority": 7, "timeout": "1m"}),
        ({"priority": 7}, {"priority": 5}, {"priority": 5}, {"priority": 5}),
        ({"priority": 5}, {"priority": 5}, {}, {}),
        ({"priority": 7}, {"priority": 5}, {}, {}),
        ({"r": {"max": 3, "cap": "1h"}}, {"r": {"max": 3}}, {"r": {"max": 4}}, {"r": {"max": 4, "cap": "1h"}}),
        ({"r": {"max": 3, "cap": "1h"}}, {"r": {"max": 3}}, {}, {"r": {"cap": "1h"}}),
        ({"r": {"max": 3}}, {"r": {"max": 3}}, {}, {}),
        ({"l": [1, 2]}, {"l": [1]}, {"l": [3]}, {"l": [3]}),
        ({"a": {"b": {"x": 1, "y": 2}}}, {}, {"a": {"b": {"x": 3}}}, {"a": {"b": {"x": 3}}}),
    ],
)
def test_fields(live: dict[str, Any], last: dict[str, Any], new: dict[str, Any], merged: dict[str, Any]) -> None:
    assert merge(live, last, new, WHOLE) == merged


@given(FIELDS, FIELDS, FIELDS)
def test_every_field_of_the_file_is_in_the_result(live: Any, last: Any, new: Any) -> None:
    merged = merge(live, last, new, WHOLE)
    for path, value in leaves(new, WHOLE):
        assert at_path(merged, path) == value or value == {}


@given(FIELDS, FIELDS, FIELDS)
def test_fields_that_no_file_mentions_stay(live: Any, last: Any, new: Any) -> None:
    merged = merge(live, last, new, WHOLE)
    for path, value in leaves(live, WHOLE):
        untouched = all(
            at_path(fields, path[:n]) is MISSING or (n < len(path) and isinstance(at_path(fields, path[:n]), dict))
            for fields in (last, new)
            for n in range(1, len(path) + 1)
        )
        above = [path[:n] for n in range(1, len(path) + 1)]
        if untouched and not any(p in WHOLE or (len(p) == 2 and p[0] == "c") for p in above):
            assert at_path(merged, path) == value


@given(FIELDS, FIELDS, FIELDS)
def test_applying_again_changes_nothing(live: Any, last: Any, new: Any) -> None:
    merged = merge(live, last, new, WHOLE)
    assert merge(merged, new, new, WHOLE) == merged
    assert list(differences(merged, merged, WHOLE)) == []


@given(FIELDS, FIELDS)
def test_a_field_that_was_dropped_is_gone(live: Any, last: Any) -> None:
    merged = merge(live, last, {}, WHOLE)
    for path, value in leaves(last, WHOLE):
        if value != {}:
            assert at_path(merged, path) is MISSING or isinstance(at_path(live, path), dict)
