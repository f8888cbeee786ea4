"""Every message of the decoder is in our words, and has a hint."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, get_args
from uuid import UUID

import msgspec
import pytest

from mainspring.api.app import endpoints
from mainspring.codec import decode, encode
from mainspring.domain.errors import Invalid
from mainspring.domain.schema_message import worded

RAW = ("Expected `", "expected `", "Invalid ", "invalid ", "Object ", "object ", "Timestamp", "Integer", "Number")
WRONG: list[Any] = [-(10**12), 10**12, 1.5, "", "x", "x" * 300, True, None, [], [[]], {}, {"x": {}}, "2026-12-01"]


def bodies() -> list[Any]:
    return sorted({e.body for e in endpoints() if e.body is not None}, key=str)


def structs(type_: Any, seen: set[Any]) -> Iterator[Any]:
    """The message types inside a type."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        if type_ in seen:
            return
        seen.add(type_)
        yield type_
        for field in msgspec.structs.fields(type_):
            yield from structs(field.type, seen)
    for arg in get_args(type_):
        yield from structs(arg, seen)


def all_structs() -> list[Any]:
    seen: set[Any] = set()
    found = [s for body in bodies() for s in structs(body, seen) if not s.__struct_config__.array_like]
    assert len(found) > 40
    return found


@pytest.mark.parametrize("type_", all_structs(), ids=lambda type_: type_.__name__)
def test_no_message_of_the_decoder_reaches_a_user(type_: Any) -> None:
    config = type_.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag is not None else {}
    refused = 0
    for field in msgspec.structs.fields(type_):
        for value in WRONG:
            try:
                decode(encode({**tag, field.encode_name: value}), type_)
            except Invalid as error:
                refused += 1
                for problem in error.problems:
                    assert not problem.message.startswith(RAW), problem
                    assert "`str`" not in problem.message, problem
                    assert problem.hint, problem
    assert refused or all(field.type is Any for field in msgspec.structs.fields(type_))


class Example(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0
    some: Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)] = []
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    by: UUID | None = None
    either: int | float | str | None = None
    text: Annotated[str, msgspec.Meta(pattern="^a+$")] = "a"
    even: Annotated[int, msgspec.Meta(multiple_of=2)] = 0
    pair: tuple[int, int] = (1, 2)
    data: bytes = b""
    yes: bool = False


@pytest.mark.parametrize(
    ("body", "message", "hint"),
    [
        ({"number": 11}, "must be at most 10, got 11", "write a number that is at most 10"),
        ({"number": -1}, "must be at least 0, got -1", "write a number that is at least 0"),
        ({"number": "x"}, "must be a whole number, got a string", "write a whole number, without quotes"),
        ({"number": 1.5}, "must be a whole number, got a number", "write a whole number, without quotes"),
        ({"some": []}, "must not be empty", "write at least one entry"),
        ({"some": [1, 2, 3]}, "has more than 2 entries", "shorten it to 2 entries"),
        ({"some": 5}, "must be a list, got a whole number", "write a list: […]"),
        ({"at": "2026-12-01"}, "not an instant, got '2026-12-01'", "write RFC 3339 with an offset"),
        ({"at": "2026-12-01T09:00:00"}, "the instant has no UTC offset, got", "add Z for UTC"),
        ({"by": "abc"}, "not an id, got 'abc'", "write the whole id"),
        ({"either": []}, "must be a number or a string, got a list", "write a number, without quotes"),
        ({"text": "b"}, "has an invalid form, got 'b'", "it must match the pattern"),
        ({"even": 3}, "must be a multiple of 2, got 3", "write a multiple of 2"),
        ({"pair": [1]}, "must have 2 entries", "write 2 entries"),
        ({"data": "?"}, "not base64, got '?'", "encode the bytes"),
        ({"yes": "true"}, "must be true or false, got a string", "write true or false, without quotes"),
    ],
)
def test_messages_say_what_is_wrong_and_what_to_do(body: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode(encode(body), Example)
    (problem,) = refused.value.problems
    assert problem.message.startswith(message), problem
    assert problem.hint.startswith(hint), problem
    assert str(problem) in refused.value.message


def test_long_values_are_shortened_and_unknown_messages_are_kept() -> None:
    assert len(worded("Invalid UUID", "x" * 1000)[0]) < 100
    assert worded("Something else", 5) == ("something else", "compare it with the schema in the API reference")
