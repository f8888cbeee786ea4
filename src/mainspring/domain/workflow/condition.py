"""Workflow conditions in the Common Expression Language (CEL): `steps.extract.result.rows > 0`.

An expression reads only the values it is given: no other names, files or clock. Its length, depth and number of loops
are limited when it is written. What evaluation costs depends on the values as well: `is_cheap` says whether it may
run on an event loop. Other expressions are evaluated in a process that can be killed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, zip_longest
from types import ModuleType
from typing import Any

# The package imports an interactive shell that is not needed here: half a second and 17 MB at every start.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

import cel  # noqa: E402

MOST_LENGTH = 1000
MOST_DEPTH = 24
MOST_LOOPS = 2
KNOWN = frozenset(("steps", "params", "upstream", "result", "iteration", "run_id", "step", "fire_at"))

LOOPS = frozenset(("map", "filter", "all", "exists", "exists_one"))
COSTLY = frozenset(("matches",))
"""Functions that take long on short values: a pattern of twenty characters may compile to megabytes."""
MOST_INLINE_STEPS = 500_000
MOST_INLINE_NODES = 5_000
"""Values with more parts than this are evaluated elsewhere; CHARS_PER_NODE characters count as one more."""
CHARS_PER_NODE = 50

_TOKEN = re.compile(
    r"//[^\n]*+"
    r"|[rRbB]{0,2}+(?:\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*+'''"
    r"|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')"
    r"|[A-Za-z_]\w*+|\s++|.",
    re.DOTALL,
)
_STEP = re.compile(r"(?<![\w.])steps\.([A-Za-z_]\w*)")
_SYNTAX = re.compile(r"<input>:1:(\d+): Syntax error: (.*?)(?: expecting .*)?\Z")
_PARAM = re.compile(r"(?<![\w.])params\.([A-Za-z_]\w*)")


class ConditionError(Exception):
    """An expression could not be evaluated; the message is for users."""


def condition_problem(text: str, known: frozenset[str] = KNOWN) -> str | None:
    """Return what is wrong with an expression that can read `known`, or None. Needs no values."""
    if not text.strip():
        return "the expression is empty"
    if len(text) > MOST_LENGTH:
        return f"the expression has {len(text):,} characters; at most {MOST_LENGTH:,} are accepted"
    shape = _shape(text)
    if shape.depth > MOST_DEPTH:
        return f"the expression is nested deeper than {MOST_DEPTH}"
    if shape.loops > MOST_LOOPS:
        return f"the expression has more than {MOST_LOOPS} loops (map, filter, all, exists)"
    try:
        named = set(_compiled(text).variables())
    except ValueError as error:
        return f"{text!r} is not an expression: {_first_line(error)}"
    # Loop variables cannot be distinguished from unknown names, so expressions with loops are not checked.
    if unknown := named - known if not shape.loops else set():
        return f"{sorted(unknown)[0]!r} is unknown: use {', '.join(sorted(known))}"
    return None


def reads_anything(text: str) -> bool:
    """Whether the value depends on a run."""
    try:
        return bool(_compiled(text).variables())
    except ValueError:
        return True


def steps_named(text: str) -> set[str]:
    """The steps whose outcome an expression reads."""
    return set(_STEP.findall(_shape(text).bare))


def params_named(text: str) -> set[str]:
    return set(_PARAM.findall(_shape(text).bare))


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
    return as_bool(text, evaluate(text, values))


def as_bool(text: str, value: Any) -> bool:
    """The value of a condition. One that is not a boolean raises ConditionError."""
    if not isinstance(value, bool):
        raise ConditionError(f"{text!r} gives {type(value).__name__}, not true or false")
    return value


@lru_cache(2000)
def _compiled(text: str) -> Any:
    return cel.compile(text)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the tokens of an expression show about its cost. `bare` has neither comments nor the text of strings."""

    bare: str
    depth: int
    loops: int
    commas: int
    sums: int
    costly: bool


@lru_cache(2000)
def _shape(text: str) -> _Shape:
    tokens = [token for token in _TOKEN.findall(text[: MOST_LENGTH + 1]) if not token.isspace() and token[:2] != "//"]
    deepest = depth = loops = 0
    costly = False
    for token, following in zip_longest(tokens, tokens[1:], fillvalue=""):
        if token in ("(", "[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (")", "]", "}"):
            depth -= 1
        elif following == "(":
            loops += token in LOOPS
            costly |= token in COSTLY
    return _Shape(_bare(tokens), deepest, loops, tokens.count(","), tokens.count("+"), costly)


def _bare(tokens: list[str]) -> str:
    """The tokens without blanks, except between words, and with empty strings."""
    parts: list[str] = []
    for token in tokens:
        if parts and parts[-1][-1].isalnum() and (token[0].isalnum() or token[0] == "_"):
            parts.append(" ")
        parts.append("''" if token[-1] in "\"'" else token)
    return "".join(parts)


def may_be_costly(text: str) -> bool:
    """Whether an expression has parts that take long on some values."""
    shape = _shape(text)
    return shape.costly or shape.loops > 0


def is_cheap(text: str, values: Mapping[str, Any]) -> bool:
    """Whether an expression may be evaluated on an event loop: its steps on these values are few.

    A loop over n values takes up to n² steps: the library copies the list of results for each. Lists and strings can
    also be repeated with `+`.
    """
    shape = _shape(text)
    nodes = _nodes(values)
    if shape.costly or nodes * (1 + shape.sums) > MOST_INLINE_NODES:
        return False
    if not shape.loops:
        return True
    steps: int = len(text) * ((nodes + shape.commas + 1) * (1 + shape.sums)) ** (2 * shape.loops)
    return steps <= MOST_INLINE_STEPS


def _nodes(values: Any) -> int:
    """The number of parts of a value, as far as `MOST_INLINE_NODES` matters."""
    count, ahead = 0, [values]
    while ahead and count <= MOST_INLINE_NODES:
        value = ahead.pop()
        count += 1
        if isinstance(value, str):
            count += len(value) // CHARS_PER_NODE
        elif isinstance(value, Mapping):
            count += len(value)
            ahead.extend(islice(value.values(), MOST_INLINE_NODES))
        elif isinstance(value, list | tuple):
            ahead.extend(islice(value, MOST_INLINE_NODES))
            count += max(0, len(value) - MOST_INLINE_NODES)
    return count


def _first_line(error: Exception) -> str:
    """The useful part of a parser error: the position and the unexpected token."""
    text = str(error).partition("\n")[0].removeprefix("Failed to ")
    if match := _SYNTAX.search(text):
        text = f"at character {match[1]}: {match[2]}"
    return text[:300]
