"""The YAML reader: the values of PyYAML, within bounds, with line and column."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Invalid, Problem
from mainspring.manifest import locate, read_documents
from mainspring.manifest.yaml_text import MAX_NESTING, MOST_DOCUMENTS, documents_in

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=12)
"""Without line breaks that YAML 1.2 no longer has."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


def value_of(text: str) -> Any:
    (document,) = documents_in(text)
    return document.value


def refused(text: str) -> str:
    with pytest.raises(Invalid) as error:
        documents_in(text)
    assert error.value.code == "not_yaml"
    return str(error.value)


@given(VALUES.filter(lambda value: value is not None))
def test_what_pyyaml_writes_is_read_as_the_same_value(value: Any) -> None:
    assert value_of(yaml.safe_dump(value, allow_unicode=True)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 0x1f", {"a": 31}),
        ("a: 1_000", {"a": 1000}),
        ("a: yes", {"a": True}),
        ("a: 'yes'", {"a": "yes"}),
        ("a: !!str 5", {"a": "5"}),
        ("a: ~", {"a": None}),
        ("a: 2026-12-01", {"a": "2026-12-01"}),
        ("a: 2026-12-01T09:00:00Z", {"a": "2026-12-01T09:00:00Z"}),
        ("on: [failed]", {"on": ["failed"]}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}", {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}}),
        ("a: &w word\nb: *w", {"a": "word", "b": "word"}),
    ],
)
def test_scalars_and_merges(text: str, value: Any) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: duplicate key 'a'"),
        ("5: x", "line 1, column 1: the key 5 is not a string"),
        ("a: {true: x}", "the key True is not a string"),
        ("? [a]\n: x", "the key a list or mapping is not a string"),
        ("a: &a [*a]", "line 1, column 8: the alias *a is inside what it names"),
        ("a: *b", "unknown alias *b"),
        ("a: !!python/object:os.system x", "the tag 'tag:yaml.org,2002:python/object:os.system' is not supported"),
        ("a: !mine {b: c}", "the tag '!mine' is not supported"),
        ("a: " + "9" * 200, "line 1, column 4: the number is too long"),
        ("a: {<<: 5}", "<< needs a mapping"),
        ("a: [1, 2", "line 1, column 9: invalid YAML"),
        ("a: \x07", "invalid YAML"),
        ("a: \ud800", "invalid YAML"),
    ],
)
def test_invalid_texts_are_refused_with_their_place(text: str, says: str) -> None:
    assert says in refused(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000 + "x", "{a: " * 100_000])
def test_deep_nesting_is_refused_where_it_begins(text: str) -> None:
    assert f"nested too deep, more than {MAX_NESTING} levels" in refused(text)


def test_aliases_that_multiply_the_text_are_refused() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    assert "too many values" in refused(bomb)


def test_documents_beyond_the_limit_are_refused_and_never_dropped() -> None:
    assert len(documents_in("a: 1\n---\n" * 50)) == 50
    assert f"more than {MOST_DOCUMENTS:,} documents" in refused("a: 1\n---\n" * (MOST_DOCUMENTS + 1))


def test_empty_documents_are_skipped_and_an_empty_text_is_refused() -> None:
    assert [document.value for document in documents_in("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n")] == [
        {"a": 1},
        {"b": 2},
    ]
    with pytest.raises(Invalid, match="the file is empty"):
        read_documents("# nothing\n")


TEXT = """\
kind: Job
metadata: {name: one}
spec: {shell: [a]}
---
kind: Job
metadata:
  name: two
spec:
  shell: [echo, hi]
  schedule:
    - cron: "0 2 * * *"
    - {cron: "75 2 * * *"}
"""


@pytest.mark.parametrize(
    ("pointer", "place"),
    [
        ("/metadata/name", (7, 3)),
        ("/name", (7, 3)),
        ("/spec/schedule/1/cron", (12, 8)),
        ("/schedule/1/cron", (12, 8)),
        ("/schedule/0", (11, 7)),
        ("/task/argv/1", (9, 17)),
        ("/spec/timeout", (8, 1)),
        ("line 3, column 9", (3, 9)),
    ],
)
def test_a_pointer_is_found_in_its_document(pointer: str, place: tuple[int, int]) -> None:
    ((_, line, column),) = locate(TEXT, [Problem(pointer, "wrong")], document=1)
    assert (line, column) == place
