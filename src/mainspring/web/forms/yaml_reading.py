"""Parses the YAML of the editors: a short text at once, a longer one in a process that can be killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.domain.errors import Invalid, Problem
from mainspring.killable import Failed, KillableFunction, Killed, Limits
from mainspring.manifest import LocatedProblem, locate, read_documents

MAX_INLINE_CHARS = 3_000
"""The parser takes up to 10 µs per character."""
MAX_INLINE_BRACKETS = 60
"""And for each character some more per open bracket."""
LIMITS = Limits(cpu_s=5.0, wall_s=30.0)


def parse(text: str) -> dict[str, Any]:
    """Parse a text in the other process: its documents, or the error."""
    try:
        return {"documents": read_documents(text)}
    except Invalid as error:
        problems = [(p.pointer, p.message, p.hint) for p in error.problems]
        return {"code": error.code, "message": error.message, "problems": problems}


def find(text: str, problems: list[list[str]]) -> list[list[int]]:
    """Find the lines and columns of problems in the other process."""
    return [[place.line, place.column] for place in locate(text, [Problem(*problem) for problem in problems])]


_PARSE = KillableFunction("mainspring.web.forms.yaml_reading:parse", LIMITS)
_FIND = KillableFunction("mainspring.web.forms.yaml_reading:find", LIMITS)


def is_short(text: str) -> bool:
    """Whether a text is parsed in a few hundredths of a second, whatever it contains."""
    return len(text) <= MAX_INLINE_CHARS and text.count("[") + text.count("{") <= MAX_INLINE_BRACKETS


async def documents_of(text: str) -> list[Any]:
    """Return the documents of a text; Invalid if it is no YAML, or takes too long to parse."""
    if is_short(text):
        return read_documents(text)
    try:
        found = await _PARSE.call(text)
    except (Killed, Failed):
        raise Invalid("the text takes too long to parse; shorten it", code="not_yaml") from None
    if "documents" not in found:
        problems = tuple(Problem(*problem) for problem in found["problems"])
        raise Invalid(found["message"], code=found["code"], problems=problems)
    documents: list[Any] = found["documents"]
    return documents


async def located(text: str, problems: Sequence[Problem]) -> list[LocatedProblem]:
    """Return problems with their lines and columns; 0 for both if the text takes too long to parse."""
    if is_short(text):
        return locate(text, problems)
    try:
        places = await _FIND.call(text, [[p.pointer, p.message, p.hint] for p in problems])
    except (Killed, Failed):
        places = [[0, 0]] * len(problems)
    return [LocatedProblem(problem, *place) for problem, place in zip(problems, places, strict=True)]
