"""What is wrong with a schedule as it was typed: the field, a caret below the place, and what to write instead."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mainspring.domain.errors import Invalid

_CARET = re.compile(r"(?P<message>.*)\n  (?P<shown>.*)\n  (?P<caret> *\^+)", re.DOTALL)
_FIELD = re.compile(r"(?P<field>[a-z ]+) field: (?P<rest>.*)", re.DOTALL)
_QUOTED = re.compile(r"'([^']+)'")


@dataclass(frozen=True, slots=True)
class Slip:
    """`shown` is the line of the text that is wrong, `caret` stands below it."""

    field: str
    message: str
    shown: str
    caret: str
    hint: str


def slip_of(error: Invalid, text: str, zone: str) -> Slip:
    """The first problem of a schedule, pointed at."""
    problem = error.problems[0] if error.problems else None
    message = problem.message if problem else error.message
    hint = problem.hint if problem else ""
    field = (problem.pointer if problem else "").removeprefix("/schedule").strip("/") or "schedule"
    shown = caret = ""
    if pointed := _CARET.fullmatch(message):
        message, shown, caret = pointed["message"], pointed["shown"], pointed["caret"]
    if named := _FIELD.fullmatch(message):
        field, message = f"{field}, {named['field']}", named["rest"]
    if not caret:
        place = zone if field == "timezone" and zone and zone not in text else text
        shown, caret = _find(message, place)
    return Slip(field.replace("/", " "), message, shown, caret, hint)


def _find(message: str, text: str) -> tuple[str, str]:
    """The line that holds what the message speaks of, and a caret below; nothing of it: the whole first line."""
    words = message.split()
    spoken = [*_QUOTED.findall(message), *(w for w in words if "=" in w), *(w for w in words if w.isupper()), words[0]]
    for line in text.splitlines():
        for word in spoken:
            if (at := line.upper().find(word.upper())) >= 0:
                return line, " " * at + "^" * len(word)
    first = next(iter(text.strip().splitlines()), "")
    return first, "^" * len(first)
