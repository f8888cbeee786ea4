"""JSON decoding and encoding, with errors that name place, cause and remedy."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from mainspring.domain.errors import Invalid, Problem, TooLarge, invalid

T = TypeVar("T")

MAX_BODY = 1_000_000
MAX_DEPTH = 32

_PLACE = re.compile(r" - at `(.*)`\Z")
_STEP = re.compile(r"\[(.*?)\]|\.")
_FIELD = re.compile(r"unknown field `(.*?)`")
_VALUE = re.compile(r"^Invalid value '(.*?)'")
_ENUM = re.compile(r"^Invalid enum value '?(.*?)'?\Z")
_MISSING = re.compile(r"missing required field `(.*?)`")
_HINTS = (
    (re.compile(r"^Expected `str`, got `(int|float|bool)`"), "put it in quotes"),
    (re.compile(r"^Expected `array`, got `(str|int|object)`"), "write a list: […]"),
    (re.compile(r"^Expected `(object|array|str)` of length >= 1"), "it must not be empty"),
)
_SOMEWHERE = re.compile(r"\A\$\.(\w+)\[\.\.\.\]")

# The closing quote is optional: a string that never ends is passed over once, not once for every quote inside it.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ROUND = bytes.maketrans(b"[{]}", b"(())")

encode = msgspec.json.Encoder().encode


def decode(body: bytes, type_: type[T], *, limit: int = MAX_BODY) -> T:
    """Decode a request body as `type_`, or raise an error that says where and why it is invalid."""
    if len(body) > limit:
        raise TooLarge(f"request body has {len(body):,} bytes; the limit is {limit:,}")
    if depth(body) > MAX_DEPTH:
        raise Invalid(f"JSON nested deeper than {MAX_DEPTH} levels", code="too_deep")
    try:
        value = msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), type_, msgspec.json.decode(body))
        raise Invalid(f"request body does not match the schema: {problem}", problems=(problem,)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not JSON: {error}", code="not_json") from None
    # The substring test first: the pattern alone took a fifth of the time of a batch of results.
    if b"\\u0000" in body and _NUL.search(body) and (pointer := _nul_at(msgspec.json.decode(body))) is not None:
        raise invalid(pointer or "/", "text cannot contain a NUL character", hint="remove it")
    return value


def _nul_at(value: Any) -> str | None:
    """Return the pointer of a string with a NUL, which PostgreSQL cannot store; None if there is none."""
    if isinstance(value, str):
        return "" if "\0" in value else None
    if isinstance(value, dict) and any("\0" in name for name in value):
        return ""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((f"/{name}{at}" for name, item in inner if (at := _nul_at(item)) is not None), None)


def depth(body: bytes) -> int:
    """Return the nesting depth without decoding, so that a deeply nested body is rejected before it is parsed."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return 0
    brackets = _STRING.sub(b"", body).translate(_ROUND, _NOT_BRACKETS)
    levels = 0
    while b"()" in brackets and levels <= MAX_DEPTH:  # removes the innermost pairs, one level per pass
        brackets = brackets.replace(b"()", b"")
        levels += 1
    # The rest is unbalanced and cannot be decoded; it counts, so that decoding is not even tried if it is deep.
    return levels + brackets.count(b"(")


def problem_of(message: str, type_: Any, value: Any = None) -> Problem:
    """Convert a message of msgspec into a problem with pointer, message and hint; `value` is the decoded body."""
    place = _PLACE.search(message)
    path = place[1] if place else "$"
    path = _SOMEWHERE.sub(lambda found: f"$.{found[1]}[{_key(type_, found[1], value)}]", path)
    text = _PLACE.sub("", message).replace("Object", "object")
    pointer = _STEP.sub(lambda step: f"/{step[1] or ''}", path.removeprefix("$"))
    hint = ""
    if unknown := _FIELD.search(text):
        known = sorted(_fields_at(type_, pointer))
        close = difflib.get_close_matches(unknown[1], known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(known)}"
        pointer, text = f"{pointer}/{unknown[1]}", f"unknown field {unknown[1]!r}"
    elif (wrong := _VALUE.search(text)) and (kinds := sorted(_kinds_at(type_, pointer))):
        close = difflib.get_close_matches(wrong[1], kinds, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(kinds)}"
        text = f"unknown {pointer.rpartition('/')[2]} {wrong[1]!r}"
    elif (wrong := _ENUM.search(text)) and (words := _words_at(type_, pointer)):
        close = difflib.get_close_matches(wrong[1], words, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(words)}"
        text = f"unknown {pointer.rpartition('/')[2]} {wrong[1]!r}"
    elif missing := _MISSING.search(text):
        hint = f"add {missing[1]}"
    else:
        hint = next((words for pattern, words in _HINTS if pattern.search(text)), "")
    return Problem(pointer or "/", text, hint)


def _key(type_: Any, field: str, value: Any) -> str:
    """Return the key of the invalid entry. The message omits it, so each entry is tried."""
    hints = [f.type for t in _structs(type_) for f in msgspec.structs.fields(t) if f.encode_name == field]
    entries = value.get(field) if isinstance(value, dict) else None
    bare = [get_args(hint)[0] if get_origin(hint) is Annotated else hint for hint in hints]
    if len(bare) == 1 and get_origin(bare[0]) is dict and isinstance(entries, dict):
        for name, entry in entries.items():
            try:
                msgspec.convert(entry, get_args(bare[0])[1])
            except msgspec.ValidationError:
                return str(name)
    return "..."


def _words_at(type_: Any, pointer: str) -> list[str]:
    """Return the allowed values of the field at a pointer if it is an enumeration."""
    place, _, field = pointer.rpartition("/")
    fields = [f.type for t in _structs_at(type_, place) for f in msgspec.structs.fields(t) if f.encode_name == field]
    return [word for hint in fields for word in _words(hint)]


def _words(type_: Any) -> list[str]:
    if get_origin(type_) is Literal:
        return [str(word) for word in get_args(type_)]
    return [word for arg in get_args(type_) for word in _words(arg)]


def _fields_at(type_: Any, pointer: str) -> set[str]:
    """Return the field names allowed at a pointer; for a union, those of all its members."""
    return {f.encode_name for t in _structs_at(type_, pointer) for f in msgspec.structs.fields(t)}


def _kinds_at(type_: Any, pointer: str) -> set[str]:
    """Return the allowed values of the field at a pointer if it is the tag of a union."""
    place, _, field = pointer.rpartition("/")
    configs = [t.__struct_config__ for t in _structs_at(type_, place)]
    return {str(config.tag) for config in configs if config.tag_field == field}


def _structs_at(type_: Any, pointer: str) -> set[Any]:
    types = _structs(type_)
    for part in pointer.split("/")[1:]:
        inner = [f.type for t in types for f in msgspec.structs.fields(t) if f.encode_name == part]
        types = {s for t in inner for s in _structs(t)} if inner else types
    return types


def _structs(type_: Any) -> set[Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return {type_}
    if get_origin(type_) is None:
        return set()
    return {s for arg in get_args(type_) for s in _structs(arg)}
