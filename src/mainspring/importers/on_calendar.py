"""Calendar events of systemd: `Mon..Fri *-*-* 09:00:00 Europe/Berlin`."""

from __future__ import annotations

import re

from mainspring.importers.plan import Unsupported
from mainspring.importers.rules.days import ALL_MONTH_DAYS, ALL_MONTHS, ALL_WEEKDAYS, DayRule, DayTerm
from mainspring.importers.rules.field_sets import SUNDAY_0, FieldError
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import LAST_YEAR, check_zone

SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
MAX_CHARS = 1000
_NAMES = {**SUNDAY_0, **{name: SUNDAY_0[name[:3]] for name in ("sunday", "monday", "tuesday", "wednesday", "thursday",
                                                               "friday", "saturday")}}  # fmt: skip
_MONDAY_FIRST = (1, 2, 3, 4, 5, 6, 0)
_YEARS = frozenset(range(1970, LAST_YEAR + 1))
_WEEKDAYS = re.compile(r"[A-Za-z][A-Za-z,.-]*\Z")


def read_rule(text: str, default_zone: str) -> WallRule:
    """When systemd fires: a skipped time does not fire, a repeated one in its first pass. Raises FieldError."""
    if len(text) > MAX_CHARS:
        raise FieldError(f"{len(text):,} characters, at most {MAX_CHARS:,} are read")
    words = text.split()
    if words and words[0].lower() in SHORTHANDS:
        words = [*SHORTHANDS[words[0].lower()].split(), *words[1:]]
    zone = default_zone
    if len(words) > 1 and (words[-1] == "UTC" or ("/" in words[-1] and words[-1][0].isalpha())):
        zone = words.pop()
    weekdays = ALL_WEEKDAYS
    if words and _WEEKDAYS.match(words[0]):
        weekdays = _weekdays(words.pop(0))
    date = words.pop(0) if words and ":" not in words[0] else "*-*-*"
    time = words.pop(0) if words else "00:00:00"
    if words or not time:
        raise FieldError("write weekdays, date, time and zone, in this order")
    years, months, days, terms = _date(date)
    hours, minutes, seconds = _time(time)
    rule = DayRule(days, weekdays, months, month_day_terms=terms, years=years)
    return WallRule(minutes, hours, rule, zone=check_zone(zone), seconds=seconds, gap="skip", passes="first")


def _weekdays(text: str) -> frozenset[int]:
    found: set[int] = set()
    for term in text.rstrip(",").split(","):
        first, dots, last = term.replace("-", "..").partition("..")
        ends = [_NAMES.get(name.lower()) for name in ((first, last) if dots else (first,))]
        if None in ends:
            raise FieldError(f"{term!r} is not a weekday")
        places = [_MONDAY_FIRST.index(end) for end in ends if end is not None]
        if places[0] > places[-1]:
            raise FieldError(f"the range {term!r} runs backwards")
        found.update(_MONDAY_FIRST[places[0] : places[-1] + 1])
    return frozenset(found)


def _date(text: str) -> tuple[frozenset[int] | None, frozenset[int], frozenset[int], tuple[DayTerm, ...]]:
    head, from_end, tail = text.partition("~")
    parts = head.split("-")
    if from_end:
        parts.append(tail)
    if len(parts) == 2:
        parts.insert(0, "*")
    if len(parts) != 3:
        raise FieldError(f"{text!r} is not a date")
    year = _component(parts[0], "year", 1970, LAST_YEAR)
    month = _component(parts[1], "month", 1, 12) or ALL_MONTHS
    if from_end:
        return year if year != _YEARS else None, month, frozenset(), _from_end(parts[2])
    days = _component(parts[2], "day", 1, 31) or ALL_MONTH_DAYS
    return year if year != _YEARS else None, month, days, ()


def _from_end(text: str) -> tuple[DayTerm, ...]:
    """Days counted from the end of the month: 01 is the last; a step goes towards the end."""
    numbers: set[int] = set()
    for term in text.split(","):
        span, slash, step = term.partition("/")
        if ".." in span:
            raise Unsupported(f"the range {term!r} counts from the end of the month", "list its days")
        first = next(iter(_component(span, "day", 1, 31) or ()), 0)
        if first == 0:
            raise FieldError(f"{term!r} is not a day")
        numbers.update(range(first, 0, -_number(step, "step", 1, 31)) if slash else [first])
    return tuple(DayTerm("last", number - 1) for number in sorted(numbers))


def _time(text: str) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    parts = text.split(":")
    if not 2 <= len(parts) <= 3:
        raise FieldError(f"{text!r} is not a time")
    hours = _component(parts[0], "hour", 0, 23) or frozenset(range(24))
    minutes = _component(parts[1], "minute", 0, 59) or frozenset(range(60))
    if len(parts) == 2:
        return hours, minutes, frozenset({0})
    if "." in parts[2].replace("..", ""):
        raise Unsupported("fractions of a second cannot be expressed", "use whole seconds")
    return hours, minutes, _component(parts[2], "second", 0, 59) or frozenset(range(60))


def _component(text: str, name: str, low: int, high: int) -> frozenset[int] | None:
    """A list of numbers, ranges `1..5` and steps `0/15`; None for a star."""
    if text == "*":
        return None
    found: set[int] = set()
    for term in text.split(","):
        span, slash, step_text = term.partition("/")
        first, dots, last = span.partition("..")
        if first == "*" and not dots:
            begin, end = low, high
        else:
            begin = _number(first, name, low, high)
            end = _number(last, name, low, high) if dots else high if slash else begin
        if end < begin:
            raise FieldError(f"{name}: the range {span!r} runs backwards")
        found.update(range(begin, end + 1, _number(step_text, "step", 1, 9999) if slash else 1))
    return frozenset(found)


def _number(text: str, name: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise FieldError(f"{name}: {text!r} is not a number")
    number = int(text)
    if name == "year" and number > high:
        return high
    if not low <= number <= high:
        raise FieldError(f"{name}: {number} is out of range ({low}-{high})")
    return number
