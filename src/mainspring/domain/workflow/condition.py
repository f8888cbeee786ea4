"""Workflow conditions in the Common Expression Language (CEL): `steps.extract.result.rows > 0`.

An expression reads only the values it is given: no other names, files or clock. Its length, depth and number of loops
are limited when it is written, so evaluation is cheap.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any

# The package imports an interactive shell that is not needed here: half a second and 17 MB at every start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

import cel  # noqa: E402

MOST_LENGTH = 1000
MOST_DEPTH = 24
MOST_LOOPS = 2
KNOWN = frozenset(("steps", "params", "upstream", "result", "iteration", "run_id", "step", "fire_at"))

_LOOP = re.compile(r"\.\s*(?:map|filter|all|exists|exists_one)\s*\(")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_STEP = re.compile(r"(?<![\w.])steps\.([A-Za-z_]\w*)")
_SYNTAX = re.compile(r"<input>:1:(\d+): Syntax error: (.*?)(?: expecting .*)?\Z")
_PARAM = re.compile(r"(?<![\w.])params\.([A-Za-z_]\w*)")


class ConditionError(Exception):
    """An expression could not be evaluated; the message is for users."""


def condition_problem(text: str) -> str | None:
    """Return what is wrong with an expression, or None. Needs no values."""
    bare = _STRING.sub("''", text)
    if not text.strip():
        return "the expression is empty"
    if len(text) > MOST_LENGTH:
        return f"the expression has {len(text):,} characters; at most {MOST_LENGTH:,} are accepted"
    if _depth(bare) > MOST_DEPTH:
        return f"the expression is nested deeper than {MOST_DEPTH}"
    if len(_LOOP.findall(bare)) > MOST_LOOPS:
        return f"the expression has more than {MOST_LOOPS} loops (map, filter, all, exists)"
    try:
        named = set(_compiled(text).variables())
    except ValueError as error:
        return f"{text!r} is not an expression: {_first_line(error)}"
    # Loop variables cannot be distinguished from unknown names, so expressions with loops are not checked.
    if unknown := named - KNOWN if not _LOOP.search(bare) else set():
        return f"{sorted(unknown)[0]!r} is unknown: use {', '.join(sorted(KNOWN))}"
    return None


def reads_anything(text: str) -> bool:
    """Whether the value depends on a run."""
    try:
        return bool(_compiled(text).variables())
    except ValueError:
        return True


def steps_named(text: str) -> set[str]:
    """The steps whose outcome an expression reads."""
    return set(_STEP.findall(_STRING.sub("''", text)))


def params_named(text: str) -> set[str]:
    return set(_PARAM.findall(_STRING.sub("''", text)))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Evaluate an expression that passed `condition_problem`."""
    try:
        return _compiled(text).execute(dict(values))
    except KeyError as error:
        raise ConditionError(f"{text!r}: there is no {error}") from None
    except Exception as error:
        raise ConditionError(f"{text!r}: {_first_line(error)}") from None


def holds(text: str, values: Mapping[str, Any]) -> bool:
    """Evaluate a condition. A value that is not a boolean raises ConditionError."""
    value = evaluate(text, values)
    if not isinstance(value, bool):
        raise ConditionError(f"{text!r} gives {type(value).__name__}, not true or false")
    return value


@lru_cache(2000)
def _compiled(text: str) -> Any:
    return cel.compile(text)


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
    return deepest


def _first_line(error: Exception) -> str:
    """The useful part of a parser error: the position and the unexpected token."""
    text = str(error).partition("\n")[0].removeprefix("Failed to ")
    if match := _SYNTAX.search(text):
        text = f"at character {match[1]}: {match[2]}"
    return text[:300]
