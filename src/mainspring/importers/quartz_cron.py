"""Cron expressions of Quartz and of AWS: Sunday is 1, `?`, `L`, `W`, `#`, and a year at the end."""

from __future__ import annotations

import re

from mainspring.importers.plan import Unsupported
from mainspring.importers.rules.days import ALL_MONTH_DAYS, ALL_WEEKDAYS, DayRule, DayTerm
from mainspring.importers.rules.field_sets import MONTHS, SUNDAY_1, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import Passes, WallRule
from mainspring.importers.schedule_writer import LAST_YEAR

_SECOND = FieldKind("second", 0, 59, wraps=True)
_MINUTE = FieldKind("minute", 0, 59, wraps=True)
_HOUR = FieldKind("hour", 0, 23, wraps=True)
_DAY = FieldKind("day of month", 1, 31, wraps=True)
_MONTH = FieldKind("month", 1, 12, MONTHS, wraps=True)
_WEEKDAY = FieldKind("day of week", 1, 7, SUNDAY_1, wraps=True)
_YEAR = FieldKind("year", 1970, 2199)
_LAST = re.compile(r"l-(\d{1,2})\Z")
_NEAREST = re.compile(r"(\d{1,2})w\Z")


def read_quartz(text: str, zone: str) -> WallRule:
    """When Quartz fires: a skipped time does not, a repeated one in its second pass. Raises FieldError."""
    words = text.split()
    if len(words) not in (6, 7):
        raise FieldError(f"{text[:60]!r}: Quartz has six or seven fields, seconds first")
    year = words[6] if len(words) == 7 else "*"
    return _rule(words[0], words[1:6], year, zone, "second")


def read_aws(text: str, zone: str) -> WallRule:
    """When EventBridge fires: a skipped time does not, a repeated one once. Raises FieldError."""
    words = text.split()
    if len(words) != 6:
        raise FieldError(f"{text[:60]!r}: cron(…) has six fields, the year last")
    return _rule("0", words[:5], words[5], zone, "first")


def _rule(second: str, words: list[str], year: str, zone: str, passes: Passes) -> WallRule:
    minute, hour, day, month, weekday = words
    if (day == "?") == (weekday == "?"):
        raise FieldError("exactly one of day of month and day of week must be ?")
    days, day_terms = (ALL_MONTH_DAYS, ()) if day == "?" else _days(day.lower())
    weekdays, weekday_terms = (ALL_WEEKDAYS, ()) if weekday == "?" else _weekdays(weekday.lower())
    years: frozenset[int] | None = read_field(year, _YEAR).numbers
    if year in ("*", "*/1"):
        years = None
    rule = DayRule(
        days,
        weekdays,
        read_field(month, _MONTH).numbers,
        month_day_terms=day_terms,
        weekday_terms=weekday_terms,
        years=None if years is None else frozenset(one for one in years if one <= LAST_YEAR),
    )
    return WallRule(
        minutes=read_field(_opened(minute), _MINUTE).numbers,
        hours=read_field(_opened(hour), _HOUR).numbers,
        days=rule,
        zone=zone,
        seconds=read_field(_opened(second), _SECOND).numbers,
        gap="skip",
        passes=passes,
    )


def _opened(text: str) -> str:
    return f"*{text}" if text.startswith("/") else text


def _days(text: str) -> tuple[frozenset[int], tuple[DayTerm, ...]]:
    plain, terms = [], []
    for term in text.split(","):
        if term == "l":
            terms.append(DayTerm("last", 0))
        elif (last := _LAST.match(term)) is not None:
            terms.append(DayTerm("last", int(last[1])))
        elif term in ("lw", "wl"):
            terms.append(DayTerm("nearest"))
        elif (nearest := _NEAREST.match(term)) is not None:
            terms.append(DayTerm("nearest", int(nearest[1])))
        elif term.startswith("l-") and term.endswith("w"):
            raise Unsupported(f"{term.upper()} cannot be expressed", "write LW, or L-3 without W")
        else:
            plain.append(term)
    return _joined(plain, terms, _DAY)


def _weekdays(text: str) -> tuple[frozenset[int], tuple[DayTerm, ...]]:
    plain, terms = [], []
    for term in text.split(","):
        name, hash_sign, number = term.partition("#")
        if hash_sign:
            if number not in ("1", "2", "3", "4", "5"):
                raise FieldError(f"day of week: #{number[:10]} does not exist")
            terms.append(DayTerm("nth", int(number), _weekday(name)))
        elif term == "l":
            plain.append("7")
        elif term.endswith("l"):
            terms.append(DayTerm("nth", None, _weekday(term[:-1])))
        else:
            plain.append(term)
    numbers, found = _joined(plain, terms, _WEEKDAY)
    return frozenset(number - 1 for number in numbers), found


def _weekday(text: str) -> int:
    (number,) = read_field(text, _WEEKDAY).numbers if "-" not in text and "/" not in text and text != "*" else (0,)
    if number == 0:
        raise FieldError(f"day of week: {text[:20]!r} is not a single day")
    return number - 1


def _joined(plain: list[str], terms: list[DayTerm], kind: FieldKind) -> tuple[frozenset[int], tuple[DayTerm, ...]]:
    numbers = read_field(_opened(",".join(plain)), kind).numbers if plain else frozenset()
    is_all = numbers == frozenset(range(kind.low, kind.high + 1))
    return numbers, () if is_all else tuple(terms)
