"""Every text, list, mapping and integer that a request may contain has a stated bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as inspect

from mainspring import wire
from mainspring.api.app import endpoints

BOUNDED_ELSEWHERE = frozenset(("CalendarDays.rules[]: str",)) | {
    f"{request}.schedule: list"
    for request in ("JobSpec", "NewBlackout", "NewSilence", "PreviewRequest", "WorkflowSpec")
}
"""Fields of schedules, which are bounded where schedules are compiled."""
SCHEDULES = "mainspring.domain.schedule."
"""The types of schedules are bounded by their compiler, which counts its steps."""


def unbounded(type_: Any, at: str, seen: set[Any]) -> Iterator[str]:
    """The places inside a type whose length, count or range is not bounded."""
    match type_:
        case inspect.StructType(cls=cls):
            if cls in seen or cls.__module__.startswith(SCHEDULES):
                return
            seen.add(cls)
            for field in type_.fields:
                yield from unbounded(field.type, f"{cls.__name__}.{field.encode_name}", seen)
        case inspect.UnionType(types=types):
            for one in types:
                yield from unbounded(one, at, seen)
        case inspect.Metadata(type=inner):
            yield from unbounded(inner, at, seen)
        case inspect.StrType(max_length=None, pattern=None):
            yield f"{at}: str"
        case inspect.BytesType(max_length=None):
            yield f"{at}: bytes"
        case inspect.IntType(ge=None, gt=None) | inspect.IntType(le=None, lt=None):
            yield f"{at}: int"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            if type_.max_length is None:
                yield f"{at}: list"
            yield from unbounded(item, f"{at}[]", seen)
        case inspect.DictType(key_type=key, value_type=value):
            if type_.max_length is None:
                yield f"{at}: dict"
            yield from unbounded(key, f"{at} key", seen)
            yield from unbounded(value, f"{at}{{}}", seen)


def found(*types: Any) -> list[str]:
    seen: set[Any] = set()
    return sorted(p for t in types for p in unbounded(inspect.type_info(t), getattr(t, "__name__", str(t)), seen))


def test_every_part_of_a_request_is_bounded() -> None:
    bodies = {str(e.body): e.body for e in endpoints() if e.body is not None}
    assert [p for p in found(*bodies.values(), wire.WorkerMessage) if p not in BOUNDED_ELSEWHERE] == []


def test_a_type_without_a_bound_is_found() -> None:
    class Planted(msgspec.Struct):
        text: str
        names: dict[str, list[int]]

    assert found(Planted) == [
        "Planted.names key: str",
        "Planted.names: dict",
        "Planted.names{}: list",
        "Planted.names{}[]: int",
        "Planted.text: str",
    ]
