"""Cron triggers of APScheduler 3: fields by name, Monday is 0, and all fields must match."""

from __future__ import annotations

from typing import Any

from mainspring.importers.crontab import MACROS
from mainspring.importers.plan import Unsupported
from mainspring.importers.rules.days import ALL_MONTH_DAYS, ALL_WEEKDAYS, DayRule, DayTerm
from mainspring.importers.rules.field_sets import MONDAY_0, MONTHS, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import LAST_YEAR

FIELDS = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_DEFAULTS = {"year": "*", "month": "1", "day": "1", "week": "*", "day_of_week": "*", "hour": "0", "minute": "0",
             "second": "0"}  # fmt: skip
_KINDS = {
    "year": FieldKind("year", 1970, LAST_YEAR),
    "month": FieldKind("month", 1, 12, MONTHS),
    "day": FieldKind("day", 1, 31),
    "day_of_week": FieldKind("day_of_week", 0, 6, MONDAY_0),
    "hour": FieldKind("hour", 0, 23),
    "minute": FieldKind("minute", 0, 59),
    "second": FieldKind("second", 0, 59),
}
_ORDINALS = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": None}


def read_rule(given: dict[str, Any], zone: str) -> WallRule:
    """When the trigger fires: in both passes of a repeated hour; a skipped time by the length of the gap later."""
    texts = {name: _text(name, value) for name, value in given.items()}
    last = max((FIELDS.index(name) for name in texts), default=len(FIELDS))
    texts = {name: texts.get(name, _DEFAULTS[name] if place > last else "*") for place, name in enumerate(FIELDS)}
    if texts["week"] not in ("*", "*/1"):
        raise Unsupported("weeks of the year (week) cannot be expressed", "name days or months instead")
    days, terms = _days(texts["day"])
    sets = {name: read_field(texts[name], kind).numbers for name, kind in _KINDS.items() if name != "day"}
    weekdays = frozenset((number + 1) % 7 for number in sets["day_of_week"])
    by_weekday = tuple(term for term in terms if term.kind == "nth")
    if by_weekday and (days or len(by_weekday) < len(terms) or weekdays != ALL_WEEKDAYS):
        raise Unsupported("days by number and by weekday together cannot be expressed", "make one job for each")
    rule = DayRule(
        ALL_MONTH_DAYS if by_weekday else days,
        frozenset() if by_weekday else weekdays,
        sets["month"],
        month_day_terms=() if by_weekday else terms,
        weekday_terms=by_weekday,
        years=None if texts["year"] == "*" else sets["year"],
    )
    return WallRule(sets["minute"], sets["hour"], rule, zone=zone, seconds=sets["second"], gap="shift", passes="both")


def crontab_fields(text: Any) -> dict[str, Any]:
    """The fields of `from_crontab`, in which 0 is Monday, too."""
    words = MACROS.get(text, text).split() if isinstance(text, str) else []
    if len(words) != 5:
        raise FieldError("from_crontab takes five fields")
    return dict(zip(("minute", "hour", "day", "month", "day_of_week"), words, strict=True))


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise FieldError(f"{name} is computed by the program")
    return str(value).replace(" ,", ",").replace(", ", ",").strip().lower()


def _days(text: str) -> tuple[frozenset[int], tuple[DayTerm, ...]]:
    """Days of the month; also `last`, `1st mon` and `last fri`."""
    plain, terms = [], []
    for term in text.split(","):
        ordinal, _, weekday = term.partition(" ")
        if term == "last":
            terms.append(DayTerm("last", 0))
        elif ordinal in _ORDINALS and weekday.strip() in MONDAY_0:
            terms.append(DayTerm("nth", _ORDINALS[ordinal], (MONDAY_0[weekday.strip()] + 1) % 7))
        else:
            plain.append(term)
    days = read_field(",".join(plain), _KINDS["day"]).numbers if plain else frozenset()
    return (ALL_MONTH_DAYS, ()) if days == ALL_MONTH_DAYS else (days, tuple(terms))
