"""JSON decoding: place and cause of errors, limits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import wire
from mainspring.codec import MAX_DEPTH, decode, depth, encode
from mainspring.domain.errors import Invalid, TooLarge
from mainspring.domain.job import JobSpec


def refused(body: bytes, type_: Any = JobSpec) -> tuple[str, str, str]:
    with pytest.raises(Invalid) as error:
        decode(body, type_)
    (problem,) = error.value.problems
    return problem.pointer, problem.message, problem.hint


@pytest.mark.parametrize(
    ("body", "pointer", "hint"),
    [
        ('{"name": 1}', "/name", ""),
        ('{"nam": "a"}', "/nam", "did you mean 'name'?"),
        ('{"name": "a", "task": {"kind": "shell", "arg": []}}', "/task/arg", "did you mean 'argv'?"),
        ('{"name": "a", "task": {"kind": "shell", "argv": ["a", 2]}}', "/task/argv/1", ""),
        ('{"name": "a", "task": {"kind": "shell", "argv": ["a"], "env": {"A": 1}}}', "/task/env/...", ""),
        ('{"name": "a", "task": {"kind": "noop"}, "retries": {"zzz": 3}}', "/retries/zzz", "known fields: base, cap"),
        ('{"name": "a", "task": {"kind": "noop"}, "schedule": {"evry": 3}}', "/schedule/evry", "did you mean 'every'?"),
        ("[]", "/", ""),
        ("null", "/", ""),
    ],
)
def test_a_problem_has_its_place_and_a_hint(body: str, pointer: str, hint: str) -> None:
    at, message, found = refused(body.encode())
    assert at == pointer
    assert message
    assert hint in found


def test_places_inside_lists() -> None:
    body = b'{"items": [{"job": "a"}, {"job": "b", "parms": {}}]}'
    assert refused(body, wire.Batch) == ("/items/1/parms", "unknown field 'parms'", "did you mean 'params'?")


@pytest.mark.parametrize("body", [b"", b"{", b"nul", b'{"a": 1}x', b"\xff", b'{"name": "\xff\xff"}', b"\x00"])
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(Invalid) as error:
        decode(body, dict)
    assert error.value.code == "not_json"


def test_too_much() -> None:
    with pytest.raises(TooLarge, match="11 bytes; the limit is 10"):
        decode(b" " * 11, dict, limit=10)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=60,
)


def nesting(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(nesting, inner), default=0)


@given(values, st.integers(0, 80))
def test_depth_is_counted_as_a_reader_would(value: Any, wrap: int) -> None:
    for _ in range(wrap):
        value = [value]
    # A quick look is enough for what has few brackets.
    if (found := depth(encode(value))) or nesting(value) > MAX_DEPTH:
        assert found == nesting(value)


def test_brackets_inside_texts_do_not_count() -> None:
    body = json.dumps({"a": '[[[["\\' * 100}).encode()
    assert depth(body) == 1
    assert decode(body, dict) == json.loads(body)


def test_exactly_deep_enough() -> None:
    assert decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, list)
    with pytest.raises(Invalid) as error:
        decode(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), list)
    assert error.value.code == "too_deep"


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 400_000, b'"' * 400_001, b'["\\' * 200_000, b"\\" * 400_000])
def test_no_body_takes_long_to_refuse(body: bytes) -> None:
    """Each of these took time by the square of its length once."""
    assert depth(b"[" * (MAX_DEPTH + 1) + body) >= 1


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("\0", "/"),
        ({"a": {"b": ["x", {"c": "y\0z"}]}}, "/a/b/1/c"),
        ({"a": [{"\0": 1}]}, "/a/0"),
    ],
)
def test_a_nul_is_found_where_it_is(value: Any, pointer: str) -> None:
    assert refused(json.dumps(value).encode(), Any) == (pointer, "text cannot contain a NUL character", "remove it")


def test_what_only_looks_like_a_nul_is_none() -> None:
    value = {"path": "C:\\u0000", "two": "\\\\u0000"}
    assert decode(json.dumps(value).encode(), dict) == value


@given(values)
def test_what_is_written_is_read(value: Any) -> None:
    body = encode(value)
    if depth(body) <= MAX_DEPTH and b"\\u0000" not in body:
        assert decode(body, Any) == value == msgspec.json.decode(body)
