"""Inputs of any size for parsers: repeated texts, and JSON values that are deep, wide, or repeat a template."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import msgspec.inspect as inspect

from tests.support.growth import Pump

Make = Callable[[int], Any]

SYNTAX = [
    "a", "0", "9", " ", "\t", "\n", "\r", "{{", "}}", "{{a}}", "{{ ", "(", ")", "[", "]", "{", "}", "'", '"', "\\", "/",
    "-", "_", ".", ",", ":", ";", "=", "+", "*", "&a ", "*a ", "<<: ", "- ", "? ", "| ", "#", "@", "%", "$", "!",
    "\x1b[1m", "\x1b]", "\0", "é", "½", "state:", "params.", "steps.a.result.", ".map(", "//", "0x", "1e9", "P1D",
    "://", "`",
]  # fmt: skip


def texts(rng: random.Random, count: int) -> Iterator[Pump]:
    """Each piece of syntax repeated, then random ones."""
    yield from (Pump("", piece) for piece in SYNTAX)
    for _ in range(count):
        pump = "".join(rng.choices(SYNTAX, k=rng.randint(1, 4)))
        yield Pump("".join(rng.choices(SYNTAX, k=rng.randint(0, 2))), pump, rng.choice(["", *SYNTAX]))


def any_json() -> dict[str, Make]:
    """JSON values of about `size` bytes."""
    return {
        "numbers": lambda size: list(range(size // 6)),
        "empty lists": lambda size: [[] for _ in range(size // 3)],
        "texts": lambda size: ["ab"] * (size // 5),
        "templates": lambda size: ["{{a}}"] * (size // 8),
        "params": lambda size: ["{{params.a}}"] * (size // 15),
        "template text": lambda size: "{{a}}" * (size // 5),
        "blanks in a template": lambda size: "{{" + " " * size,
        "keys": lambda size: {f"k{n}": n for n in range(size // 14)},
        "long key": lambda size: {"k" * (size // 2): [""] * (size // 6)},
        "deep": lambda size: _deep(28, size),
        "text": lambda size: "x" * size,
        "control characters": lambda size: "\x01" * (size // 6),
        "objects": lambda size: [{"a": {"b": 1}} for _ in range(size // 15)],
        "long number": lambda size: 10 ** min(size, 4000),
    }


def _deep(levels: int, size: int) -> Any:
    value: Any = "x" * (size // 2)
    for level in range(levels):
        value = [value] if level % 2 else {"k" * (size // 2 // levels): value}
    return value


class Bodies:
    """Bodies of one type: a small valid one, and such with one large part."""

    def __init__(self, type_: Any) -> None:
        self._type = inspect.type_info(type_)

    def small(self) -> Any:
        return _small(self._type, 0)

    def large(self) -> dict[str, Make]:
        """By the place of the large part."""
        return dict(_large(self._type, "", 0))


def _small(type_: Any, depth: int) -> Any:
    match type_:
        case inspect.Metadata(type=inner):
            return _small(inner, depth)
        case inspect.StructType():
            value = {f.encode_name: _small(f.type, depth + 1) for f in type_.fields if f.required}
            if type_.tag_field is not None:
                value[type_.tag_field] = type_.tag
            return list(value.values()) if type_.array_like else value
        case inspect.UnionType(types=types):
            return _small(types[0], depth)
        case inspect.IntType() | inspect.FloatType():
            return type_.ge or (type_.le and min(1, type_.le)) or 1
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [_small(item, depth + 1) for _ in range(type_.min_length or 0)]
        case inspect.DictType(key_type=_, value_type=value_type):
            return {f"k{n}": _small(value_type, depth + 1) for n in range(type_.min_length or 0)}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.UUIDType():
            return "00000000-0000-7000-8000-000000000000"
        case inspect.DateTimeType():
            return "2027-01-01T00:00:00Z"
        case inspect.BytesType():
            return "eA=="
        case inspect.BoolType():
            return True
        case inspect.NoneType() | inspect.AnyType():
            return None
    return "noop"


def _with(small: dict[str, Any], name: str, make: Make) -> Make:
    return lambda size: {**small, name: make(size)}


def _listed(make: Make) -> Make:
    return lambda size: [make(size)]


def _large(type_: Any, at: str, depth: int) -> Iterator[tuple[str, Make]]:
    match type_:
        case inspect.Metadata(type=inner):
            yield from _large(inner, at, depth)
        case inspect.StructType() if depth < 6 and not type_.array_like:
            small = _small(type_, depth)
            for field in type_.fields:
                for place, make in _large(field.type, f"{at}/{field.encode_name}", depth + 1):
                    yield place, _with(small, field.encode_name, make)
            yield f"{at}: unknown field", lambda size: {**small, " - at `" * (size // 7): 1}
            yield f"{at}: unknown fields", lambda size: {**small, **{f"x{n}": 1 for n in range(size // 12)}}
        case inspect.UnionType(types=types):
            for number, one in enumerate(types):
                yield from _large(one, f"{at}|{number}" if len(types) > 1 else at, depth)
        case inspect.StrType():
            for piece in ("a", " ", "{{a}}", "1", "'"):
                yield f"{at}: {piece!r}", Pump("", piece)
            most = type_.max_length or 1000
            yield f"{at}: longest", lambda size: "a" * min(size, most)
        case inspect.IntType():
            yield f"{at}: 64 bits", lambda size: 2**63 - 1
            yield f"{at}: long", lambda size: 10 ** min(size, 4200)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            one = _small(item, depth)
            length = len(msgspec.json.encode(one)) + 1
            most = type_.max_length or 1_000_000
            yield f"{at}: list", lambda size: [one] * (size // length)
            yield f"{at}: longest list", lambda size: [one] * min(size // length, most)
            for place, make in _large(item, f"{at}/0", depth + 1):
                yield place, _listed(make)
        case inspect.DictType(value_type=value):
            one = _small(value, depth)
            length = len(msgspec.json.encode(one)) + 10
            most = type_.max_length or 1_000_000
            yield f"{at}: dict", lambda size: {f"k{n}": one for n in range(size // length)}
            yield f"{at}: longest dict", lambda size: {f"k{n}": one for n in range(min(size // length, most))}
            yield f"{at}: long key", lambda size: {"k" * size: one}
            for place, make in _large(value, f"{at}/k", depth + 1):
                yield place, _with({}, "k", make)
        case inspect.AnyType():
            for name, make in any_json().items():
                yield f"{at}: {name}", make
