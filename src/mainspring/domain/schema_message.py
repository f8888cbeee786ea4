"""Messages of the decoder in the words of users, each with what to do. Pure."""

from __future__ import annotations

import re
from typing import Any

MAX_SHOWN_CHARS = 40
NOT_KNOWN: Any = object()
"""The value of the request is not known."""

_BOUND = re.compile(r"Expected `([^`]+)` (<=|>=|<|>) (\S+)\Z")
_LENGTH = re.compile(r"Expected `([^`]+)` of length (<=|>=) (\d+)\Z")
_COUNT = re.compile(r"Expected `array` of (?:(at least) )?length (\d+)(?:, got \d+)?\Z")
_TYPE = re.compile(r"Expected `([^`]+)`, got `([^`]+)`\Z")
_PATTERN = re.compile(r"Expected `str` matching regex (.+)\Z", re.DOTALL)
_MULTIPLE = re.compile(r"Expected `[^`]+` that's a multiple of (\S+)\Z")
_BOUNDS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_NAMES = {
    "str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null", "datetime": "an instant", "uuid": "an id", "bytes": "base64 text",
}  # fmt: skip
_GOT = {**_NAMES, "bool": "a boolean"}
_INSTANT = "write RFC 3339 with an offset, such as 2026-12-01T09:00:00Z"
_TO_DO = {
    "str": "put it in quotes", "int": "write a whole number, without quotes", "float": "write a number, without quotes",
    "bool": "write true or false, without quotes", "array": "write a list: […]", "object": "write an object: {…}",
    "datetime": _INSTANT, "uuid": "write the whole id", "null": "write null, or leave it out",
}  # fmt: skip
_UNITS = {"str": "characters", "array": "entries", "object": "entries", "bytes": "bytes"}
_FIXED = {
    "Invalid RFC3339 encoded datetime": ("not an instant", _INSTANT),
    "Expected `datetime` with a timezone component": (
        "the instant has no UTC offset",
        "add Z for UTC, or an offset such as +01:00",
    ),
    "Invalid UUID": ("not an id", "write the whole id, such as 0192f3c1-2b4d-8a1f-9c3e-5d6f7a8b9c0d"),
    "Invalid base64 encoded string": ("not base64", "encode the bytes as base64 with padding"),
    "Integer value out of range": ("the number is out of range", "write a smaller number, or a string"),
    "Number out of range": ("the number is out of range", "write a smaller number, or a string"),
    "Timestamp is out of range": ("the instant is out of range", "write a year from 1970 to 2999"),
}


def worded(text: str, given: Any = NOT_KNOWN) -> tuple[str, str]:
    """Return message and hint for a message of the decoder; `given` is the value that it refused."""
    got = _shown(given)
    if (found := _BOUND.match(text)) is not None:
        return f"must be {_BOUNDS[found[2]]} {found[3]}{got}", f"write a number that is {_BOUNDS[found[2]]} {found[3]}"
    if (found := _LENGTH.match(text)) is not None:
        return _length(found[1], found[2], int(found[3]))
    if (found := _COUNT.match(text)) is not None:
        most = "at least " if found[1] else ""
        return f"must have {most}{found[2]} entries", f"write {most}{found[2]} entries"
    if (found := _TYPE.match(text)) is not None:
        return _type(found[1].split(" | "), found[2])
    if (found := _MULTIPLE.match(text)) is not None:
        return f"must be a multiple of {found[1]}{got}", f"write a multiple of {found[1]}"
    if (found := _PATTERN.match(text)) is not None:
        return f"has an invalid form{got}", f"it must match the pattern {found[1]}"
    if text in _FIXED:
        message, hint = _FIXED[text]
        return message + got, hint
    return text[:1].lower() + text[1:], "compare it with the schema in the API reference"


def _length(kind: str, comparison: str, bound: int) -> tuple[str, str]:
    units = _UNITS.get(kind, "entries")
    if comparison == ">=" and bound == 1:
        return "must not be empty", f"write at least one {units.removesuffix('s') if units != 'entries' else 'entry'}"
    if comparison == ">=":
        return f"has fewer than {bound:,} {units}", f"write at least {bound:,} {units}"
    return f"has more than {bound:,} {units}", f"shorten it to {bound:,} {units}"


def _type(expected: list[str], got: str) -> tuple[str, str]:
    wanted = [kind for kind in expected if kind != "null"] or expected
    if "float" in wanted and "int" in wanted:
        wanted.remove("int")
    names = [_NAMES.get(kind, kind) for kind in wanted]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f"must be {listed}, got {_GOT.get(got, got)}", _TO_DO.get(wanted[0], f"write {listed}")


def _shown(given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return ""
    text = repr(given)
    return f", got {text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '…'}"
