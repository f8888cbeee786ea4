"""Cron fields as sets of numbers, in the dialect of each source. Shares no code with Mainspring's own parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_FIELD_CHARS = 1000

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
SUNDAY_0 = {name: number for number, name in enumerate(_DAY_NAMES)}
SUNDAY_1 = {name: number for number, name in enumerate(_DAY_NAMES, 1)}
MONDAY_0 = {name: (number - 1) % 7 for number, name in enumerate(_DAY_NAMES)}


class FieldError(ValueError):
    """A field that the source would not accept, or that this reader does not understand."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What one field of a dialect may hold."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    wraps: bool = False
    """Whether a range may run over the end of the field, such as 22-2."""
    open_steps: bool = True
    """Whether `5/15` means from 5 to the end in steps of 15."""
    question_mark: bool = False
    long_names: bool = False
    """Whether only the first three letters of a name count."""


@dataclass(frozen=True, slots=True)
class FieldSet:
    """The numbers of a field. `starred`: it begins with a star; `stepped`: some part of it has a step."""

    numbers: frozenset[int]
    starred: bool
    stepped: bool


def read_field(text: str, kind: FieldKind) -> FieldSet:
    """Read a list of numbers, ranges and steps. Raises FieldError."""
    if len(text) > MAX_FIELD_CHARS:
        raise FieldError(f"{kind.name}: the field has {len(text):,} characters, at most {MAX_FIELD_CHARS:,} are read")
    numbers: set[int] = set()
    stepped = False
    for term in text.split(","):
        span, slash, step_text = term.partition("/")
        step = _step(step_text, kind, term) if slash else 1
        stepped |= step > 1
        numbers.update(_span(span, kind, term, is_open=bool(slash))[::step])
    return FieldSet(frozenset(numbers), text[:1] in ("*", "?"), stepped)


def _span(span: str, kind: FieldKind, term: str, *, is_open: bool) -> list[int]:
    if span == "*" or (span == "?" and kind.question_mark):
        return list(range(kind.low, kind.high + 1))
    first, dash, last = span.partition("-")
    low = _number(first, kind, term)
    if not dash:
        if is_open and not kind.open_steps:
            raise FieldError(f"{kind.name}: a step needs a range, not {term!r}")
        return list(range(low, kind.high + 1)) if is_open else [low]
    high = _number(last, kind, term)
    if high >= low:
        return list(range(low, high + 1))
    if not kind.wraps:
        raise FieldError(f"{kind.name}: the range {span!r} runs backwards")
    return [*range(low, kind.high + 1), *range(kind.low, high + 1)]


def _step(text: str, kind: FieldKind, term: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4) or int(text) == 0:
        raise FieldError(f"{kind.name}: {term!r} has no valid step")
    return int(text)


def _number(text: str, kind: FieldKind, term: str) -> int:
    named = kind.names.get((text[:3] if kind.long_names else text).lower())
    if named is not None:
        return named
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise FieldError(f"{kind.name}: {term!r} is not a value")
    number = int(text)
    if not kind.low <= number <= kind.high:
        raise FieldError(f"{kind.name}: {number} is out of range ({kind.low}-{kind.high})")
    return number
