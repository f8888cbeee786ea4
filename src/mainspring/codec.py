"""JSON decoding and encoding, with errors that name place, cause and remedy."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

import msgspec

from mainspring.domain.errors import Invalid, Problem, TooLarge, invalid
from mainspring.domain.schema_message import NOT_KNOWN, worded
from mainspring.domain.suggestion import closest

T = TypeVar("T")

MAX_BODY = 1_000_000
MAX_DEPTH = 32

BYTES_PER_VALUE = 5
"""A body has at most one JSON value per so many bytes of its limit: an empty list of two bytes takes 64 in memory."""
MAX_MESSAGE_CHARS = 2000
"""Longer messages of the decoder are shortened in the middle: they quote names that the request contains."""
INTEGER_DIGITS = 19
MAX_INTEGER = 2**63 - 1
"""Integers have 64 bits, as in the database. Larger ones belong in strings."""

_PLACE = " - at `"
_STEP = re.compile(r"\[([^\[\]]*+)\]|\.")
_FIELD = re.compile(r"unknown field `(.*?)`")
_VALUE = re.compile(r"^Invalid value '(.*?)'")
_ENUM = re.compile(r"^Invalid enum value '?(.*?)'?\Z")
_MISSING = re.compile(r"missing required field `(.*?)`")
_SOMEWHERE = re.compile(r"\A\$\.(\w+)\[\.\.\.\]")

# The closing quote is optional: a string that never ends is passed over once, not once for every quote inside it.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_INTEGER = re.compile(rb"(?<![\d.eE+-])-?+\d{%d,}+(?![.eE])" % INTEGER_DIGITS)
SMALL_BODY = 65_536
"""Bytes up to which a body may be split into parts."""
_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_DIGITS = b"0" * INTEGER_DIGITS
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ROUND = bytes.maketrans(b"[{]}", b"(())")

encode = msgspec.json.Encoder().encode


def decode(body: bytes, type_: type[T], *, limit: int = MAX_BODY, large_integers: bool = False) -> T:
    """Decode a request body as `type_`, or raise an error that says where and why it is invalid.

    `large_integers` admits integers of more than 64 bits where any JSON is admitted: a function may return one.
    """
    if len(body) > limit:
        raise TooLarge(f"request body has {len(body):,} bytes; the limit is {limit:,}")
    if depth(body) > MAX_DEPTH:
        raise Invalid(f"JSON nested deeper than {MAX_DEPTH} levels", code="too_deep")
    most = limit // BYTES_PER_VALUE
    if len(body) > most and _values(body) > most:
        raise TooLarge(f"request body has more than {most:,} JSON values")
    if not large_integers:
        refuse_large_integers(body)
    try:
        value: T = _decoder(cast(Any, type_)).decode(body)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), type_, _untyped(body))
        raise Invalid(f"request body does not match the schema: {problem}", problems=(problem,)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not JSON: {error}", code="not_json") from None
    # The substring test first: the pattern alone took a fifth of the time of a batch of results.
    if b"\\u0000" in body and _NUL.search(body) and (pointer := _nul_at(msgspec.json.decode(body))) is not None:
        raise invalid(pointer or "/", "text cannot contain a NUL character", hint="remove it")
    return value


@functools.cache
def _decoder(type_: Any) -> Any:
    """Kept: msgspec analyses a union again for each call without one, which took 40 µs for messages of workers."""
    return msgspec.json.Decoder(type_)


def refuse_large_integers(body: bytes) -> None:
    """Raise Invalid if a JSON text has an integer of more than 64 bits."""
    # The substring test first: it takes a tenth of the time of the pattern, and nearly always suffices.
    if _LONG_DIGITS not in body.translate(_DIGITS):
        return
    for found in _INTEGER.finditer(_STRING.sub(b'""', body)):
        digits = found[0].lstrip(b"-")
        if len(digits) > INTEGER_DIGITS or int(digits) > MAX_INTEGER:
            shown = f"{found[0][:24].decode()}{'…' if len(found[0]) > 24 else ''}"
            raise Invalid(
                f"the integer {shown} has more than 64 bits; send it as a string",
                code="number_out_of_range",
                problems=(Problem("/", f"the integer {shown} has more than 64 bits", "send it as a string"),),
            )


def _untyped(body: bytes) -> Any:
    """The body as plain values, to find the place of a problem; None if a number is too large for any type."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _nul_at(value: Any) -> str | None:
    """Return the pointer of a string with a NUL, which PostgreSQL cannot store; None if there is none."""
    if isinstance(value, str):
        return "" if "\0" in value else None
    if isinstance(value, dict) and any("\0" in name for name in value):
        return ""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((f"/{name}{at}" for name, item in inner if (at := _nul_at(item)) is not None), None)


def _values(body: bytes) -> int:
    """Return about how many JSON values a text has, without decoding it."""
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    if count <= len(body) // 6:
        return count
    bare = _without_strings(body)
    return bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def _without_strings(body: bytes) -> bytes:
    """Return a JSON text without its strings."""
    # Splitting takes a sixth of the time of the pattern, and 40 bytes for each quotation mark.
    if len(body) <= SMALL_BODY and b"\\" not in body:
        return b"".join(body.split(b'"')[::2])
    return _STRING.sub(b"", body)


def depth(body: bytes) -> int:
    """Return the nesting depth without decoding, so that a deeply nested body is rejected before it is parsed."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return 0
    brackets = _without_strings(body).translate(_ROUND, _NOT_BRACKETS)
    levels = 0
    while b"()" in brackets and levels <= MAX_DEPTH:  # removes the innermost pairs, one level per pass
        brackets = brackets.replace(b"()", b"")
        levels += 1
    # The rest is unbalanced and cannot be decoded; it counts, so that decoding is not even tried if it is deep.
    return levels + brackets.count(b"(")


def problem_of(message: str, type_: Any, value: Any = None) -> Problem:
    """Convert a message of msgspec into a problem with pointer, message and hint; `value` is the decoded body."""
    text, found, place = message.rpartition(_PLACE)
    text, path = (text, place.removesuffix("`")) if found else (message, "$")
    path = path.rpartition("` in `")[2]  # a key is invalid: the place of its mapping
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS // 2]}…{text[-MAX_MESSAGE_CHARS // 4 :]}"
    path = _SOMEWHERE.sub(lambda found: f"$.{found[1]}[{_key(type_, found[1], value)}]", path)
    pointer = _STEP.sub(lambda step: f"/{step[1] or ''}", path.removeprefix("$"))
    hint = ""
    if unknown := _FIELD.search(text):
        known = sorted(_fields_at(type_, pointer))
        close = closest(unknown[1], known, cutoff=0.5)
        hint = f"did you mean {close!r}?" if close else f"known fields: {', '.join(known)}"
        pointer, text = f"{pointer}/{unknown[1]}", f"unknown field {unknown[1]!r}"
    elif (wrong := _VALUE.search(text)) and (kinds := sorted(_kinds_at(type_, pointer))):
        close = closest(wrong[1], kinds)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(kinds)}"
        text = f"unknown {pointer.rpartition('/')[2]} {wrong[1]!r}"
    elif (wrong := _ENUM.search(text)) and (words := _words_at(type_, pointer)):
        close = closest(wrong[1], words)
        hint = f"did you mean {close!r}?" if close else f"one of {', '.join(words)}"
        text = f"unknown {pointer.rpartition('/')[2]} {wrong[1]!r}"
    elif missing := _MISSING.search(text):
        text, hint = f"missing required field `{missing[1]}`", f"add {missing[1]}"
    else:
        text, hint = worded(text, _value_at(value, pointer))
    return Problem(pointer or "/", text, hint)


def _value_at(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return NOT_KNOWN
    return value


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
