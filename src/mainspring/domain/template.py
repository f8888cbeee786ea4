"""`{{name}}` templates in task values: plain substitution in one pass, resolved when an attempt starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

NAMES = ("fire_at", "execution_date", "execution_id", "attempt", "job", "run_id")
"""Names available in every task, in addition to `params.<name>`. `run_id` is empty outside a workflow."""

_PLACE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_PARAM = re.compile(r"params\.[A-Za-z_][A-Za-z0-9_]*\Z")


def unknown_names(text: str) -> list[tuple[str, str]]:
    """Unknown names in a string, each with a hint."""
    found = []
    for name in _PLACE.findall(text):
        if name not in NAMES and not _PARAM.match(name):
            close = difflib.get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {{{{{close[0]}}}}}?" if close else f"known: {', '.join(NAMES)}, params.<name>"
            found.append((name, hint))
    return found


def param_names(text: str) -> Iterator[str]:
    """The parameters that a string refers to."""
    return (name.removeprefix("params.") for name in _PLACE.findall(text) if _PARAM.match(name))


def places(text: str) -> list[str]:
    """All names that a string refers to."""
    return _PLACE.findall(text)


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """Rename the names in a string."""
    return _PLACE.sub(lambda match: "{{" + rename(match[1]) + "}}", text)


def strings(value: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """Yield all strings inside a JSON value with their JSON pointers; object keys are not templates."""
    if isinstance(value, str):
        yield pointer, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, f"{pointer}/{key}")
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from strings(item, f"{pointer}/{place}")


def render(text: str, values: Mapping[str, Any]) -> str:
    """Substitute values as text. A missing parameter raises KeyError and fails the attempt."""
    if "{{" not in text:
        return text
    return _PLACE.sub(lambda match: _text(values[match[1]]), text)


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """Substitute inside a JSON value. A string that is exactly one template becomes the value itself, with its type."""
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        return values[whole[1]] if whole else render(value, values)
    if isinstance(value, dict):
        return {key: fill(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, values) for item in value]
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
