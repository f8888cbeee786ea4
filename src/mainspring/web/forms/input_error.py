"""An error in typed input: the field, the line with a caret below the error, and a hint."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mainspring.domain.errors import Invalid

_CARET = re.compile(r" *+\^++")
MAX_LINES, MAX_WORDS = 200, 50
"""How many lines are searched for how many words of a message."""
_FIELD = re.compile(r"(?P<field>[a-z ]+) field: (?P<rest>.*)", re.DOTALL)
_QUOTED = re.compile(r"'([^']+)'")


@dataclass(frozen=True, slots=True)
class InputError:
    """`shown` is the line with the error, `caret` the line of carets below it."""

    field: str
    message: str
    shown: str
    caret: str
    hint: str


def locate_error(error: Invalid, text: str, zone: str) -> InputError:
    """Return the first problem with its place in the text."""
    problem = error.problems[0] if error.problems else None
    message = problem.message if problem else error.message
    hint = problem.hint if problem else ""
    field = (problem.pointer if problem else "").removeprefix("/schedule").strip("/") or "schedule"
    shown = caret = ""
    if len(parts := message.rsplit("\n  ", 2)) == 3 and _CARET.fullmatch(parts[2]):
        message, shown, caret = parts
    if named := _FIELD.fullmatch(message):
        field, message = f"{field}, {named['field']}", named["rest"]
    if not caret:
        source = zone if field == "timezone" and zone and zone not in text else text
        shown, caret = _find(message, source)
    return InputError(field.replace("/", " "), message, shown, caret, hint)


def _find(message: str, text: str) -> tuple[str, str]:
    """Return the line that contains what the message quotes, and carets below it; by default the whole first line."""
    words = message.split()
    quoted = [*_QUOTED.findall(message), *(w for w in words if "=" in w), *(w for w in words if w.isupper()), words[0]]
    for line in text.splitlines()[:MAX_LINES]:
        for word in quoted[:MAX_WORDS]:
            if (at := line.upper().find(word.upper())) >= 0:
                return line, " " * at + "^" * len(word)
    first = next(iter(text.strip().splitlines()), "")
    return first, "^" * len(first)
