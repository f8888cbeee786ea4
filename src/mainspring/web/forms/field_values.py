"""Parse the text of a form field into a value of the definition, and write a value as text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.codec import MAX_INTEGER, decode
from mainspring.domain.errors import Invalid, clipped, invalid
from mainspring.web.forms.fields import Field

_ANY = object()


def read(field: Field, text: str) -> Any:
    """Parse the text of a field that is not empty."""
    at, text = field.pointer, text.strip()
    match field.kind:
        case "number":
            return text if "{{" in text else number(text, at)
        case "words":
            return words(text, at)
        case "pairs":
            return _pairs(text, "=", at, "NAME=value")
        case "headers":
            return _pairs(text, ":", at, "Name: value")
        case "list":
            return [int(word) if word.isdecimal() and len(word) < 19 else word for word in _listed(text)]
        case "numbers":
            return [number(word, at) for word in _listed(text)]
        case "json":
            return text if text.startswith("{{") else from_json(text, at)
        case "json_or_text":
            return from_json(text, at) if text.startswith(("{", "[")) and not text.startswith("{{") else text
        case "flag":
            return True
        case _:
            return text


def write(field: Field, value: Any) -> str:
    if value is None or value is False or value in ({}, [], (), ""):
        return ""
    match field.kind:
        case "words" if isinstance(value, list | tuple):
            return shlex.join(value)
        case "pairs" if isinstance(value, dict):
            return "\n".join(f"{name}={item}" for name, item in value.items())
        case "headers" if isinstance(value, dict):
            return "\n".join(f"{name}: {item}" for name, item in value.items())
        case "list" | "numbers" if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        case "json":
            return value if isinstance(value, str) and value.startswith("{{") else to_json(value)
        case "flag":
            return "1"
        case _:
            return value if isinstance(value, str) else to_json(value)


def number(text: str, pointer: str) -> int | float:
    try:
        found = int(text) if "." not in text else float(text)
    except ValueError:
        found = math.inf
    if abs(found) > MAX_INTEGER:  # a JSON number is no NaN and no infinity, and an integer has 64 bits
        raise invalid(pointer, f"{clipped(text, 40)!r} is not a number", hint="such as 3")
    return found


def words(text: str, pointer: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise invalid(pointer, f"invalid quoting: {error}", hint="close the quotes") from None


def from_json(text: str, pointer: str) -> Any:
    try:
        return decode(text.encode(), Any)
    except Invalid as error:
        said = error.problems[0].message if error.problems else error.message.replace("the body is", "this is")
        raise invalid(pointer, said, hint='such as {"region": "eu"}') from None


def to_json(value: Any) -> str:
    packed = msgspec.json.encode(value)
    return (packed if len(packed) < 60 else msgspec.json.format(packed, indent=2)).decode()


def read_param(name: str, values: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Read one parameter from its row in the form."""
    about: dict[str, Any] = {}
    type_ = values.get(f"{prefix}type", "")
    if type_:
        about["type"] = type_
    if default := values.get(f"{prefix}default", ""):
        about["default"] = value_of(type_, default, f"/params/{name}/default")
    if enum := values.get(f"{prefix}enum", ""):
        about["enum"] = [value_of(type_, word, f"/params/{name}/enum") for word in _listed(enum)]
    if description := values.get(f"{prefix}description", ""):
        about["description"] = description
    return about


def param_row(name: str, about: Mapping[str, Any]) -> dict[str, str]:
    type_ = about.get("type", "")
    default = about.get("default", _ANY)
    return {
        "name": name,
        "type": type_,
        "default": "" if default is _ANY else text_of(type_, default),
        "enum": ", ".join(text_of(type_, value) for value in about.get("enum", ())),
        "description": about.get("description", ""),
    }


def value_of(type_: str | None, text: str, pointer: str) -> Any:
    """Parse the value of a parameter. Strings may be written with or without quotes."""
    text = text.strip()
    if type_ == "string" and not text.startswith('"'):
        return text
    if type_ in ("", None) and not text.startswith(('"', "{", "[")):
        try:
            return msgspec.json.decode(text.encode())
        except msgspec.DecodeError:
            return text
    hints = {"boolean": "true or false", "integer": "such as 3", "number": "such as 0.5", "array": "such as [1, 2]"}
    try:
        return from_json(text, pointer)
    except Invalid:
        hint = hints.get(type_ or "", 'such as {"n": 1}')
        raise invalid(pointer, f"{text!r} is not {_an(type_ or 'JSON value')}", hint=hint) from None


def text_of(type_: str | None, value: Any) -> str:
    if isinstance(value, str) and value.strip() and value == value.strip() and not value.startswith('"'):
        if type_ == "string":
            return value
        try:
            msgspec.json.decode(value.encode())
        except msgspec.DecodeError:
            return value if not value.startswith(("{", "[")) else to_json(value)
    return to_json(value)


def _an(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]


def _pairs(text: str, sign: str, pointer: str, shape: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition(sign)
        if not equals or not name.strip():
            raise invalid(pointer, f"{line.strip()!r} is not {shape}", hint=f"write one {shape} on each line")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found
