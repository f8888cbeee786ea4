"""Writes the rule of a source as a Mainspring schedule with the same fires, or says why there is none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.schedule.wallclock import Gap
from mainspring.importers.plan import Unsupported
from mainspring.importers.rules.days import ALL_MONTH_DAYS, ALL_MONTHS, ALL_WEEKDAYS, DayTerm
from mainspring.importers.rules.wall_clock import WallRule

LAST_YEAR = 2099
"""A range of years up to here has no end."""
_GAPS: dict[str, Gap] = {"skip": "skip", "after": "next_valid", "shift": "next_valid"}


def write_schedule(rule: WallRule) -> ScheduleSpec:
    """The cron schedule of a rule. A `shift` is written as `next_valid`; the comparison finds where that differs."""
    days = rule.days
    no_day = days.month_days == ALL_MONTH_DAYS
    no_weekday = days.weekdays == ALL_WEEKDAYS
    any_date = (no_day or no_weekday) if days.either else (no_day and no_weekday)
    day, weekday = "*", "*"
    if not any_date:
        day = "*" if no_day else _terms(_list(days.month_days), days.month_day_terms)
        weekday = "*" if no_weekday else _terms(_list(days.weekdays), days.weekday_terms)
    follows_clock = rule.zone != "UTC"
    # A star in minute or hour would mean: in both passes of a repeated hour.
    may_star = not follows_clock or (rule.gap == "skip" and rule.passes == "both")
    minute, hour = _field(rule.minutes, 59, may_star), _field(rule.hours, 23, may_star)
    month = "*" if days.months == ALL_MONTHS else _list(days.months)
    fields = [minute, hour, day, month, weekday]
    if rule.seconds != {0}:
        fields.insert(0, _field(rule.seconds, 59, may_star))
    start, end = _window(days.years)
    return ScheduleSpec(
        cron=" ".join(fields),
        timezone=None if rule.zone == "UTC" else rule.zone,
        gap=_GAPS[rule.gap] if follows_clock else "next_valid",
        overlap_hour=rule.passes if follows_clock else "first",
        day_and=not days.either and day != "*" and weekday != "*",
        start_at=start,
        end_at=end,
    )


def check_zone(name: str) -> str:
    """A zone by name, `UTC` for its synonyms; raises Unsupported for an unknown one."""
    if name in ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "UCT", "Etc/UCT", "Etc/Zulu", "Universal"):
        return "UTC"
    if name in ("localtime", "Factory") or name not in available_timezones():
        raise Unsupported(f"unknown time zone {name[:64]!r}", "use an IANA name such as Europe/Berlin")
    return name


def wall_ms(text: str, zone: str) -> int:
    """A timestamp in milliseconds; without an offset it is a wall time of `zone`. Raises ValueError."""
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=ZoneInfo(zone))
    return round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def instant_text(ms: int) -> str:
    """An instant as schedules write it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def _window(years: frozenset[int] | None) -> tuple[str | None, str | None]:
    if years is None:
        return None, None
    if not years:
        raise Unsupported("no year is left", "check the year field")
    first, last = min(years), max(years)
    if len(years) != last - first + 1:
        raise Unsupported("years with gaps cannot be expressed", "make one job per range of years")
    start = None if first <= 1970 else f"{first}-01-01T00:00:00"
    return start, None if last >= LAST_YEAR else f"{last}-12-31T23:59:59"


def _field(numbers: frozenset[int], high: int, may_star: bool) -> str:
    if may_star:
        for step in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30):
            if step <= high and numbers == set(range(0, high + 1, step)):
                return "*" if step == 1 else f"*/{step}"
    return _list(numbers)


def _list(numbers: frozenset[int]) -> str:
    """Numbers as `1-5`, `0-45/15` or a list of numbers and ranges; empty if there are none."""
    ordered = sorted(numbers)
    steps = {later - earlier for earlier, later in itertools.pairwise(ordered)}
    if len(ordered) > 2 and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"{ordered[0]}-{ordered[-1]}/{step}"
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _terms(numbers: str, terms: Sequence[DayTerm]) -> str:
    return ",".join([*([numbers] if numbers else []), *(_term(term) for term in terms)])


def _term(term: DayTerm) -> str:
    match term.kind:
        case "last":
            return f"L-{term.number}" if term.number else "L"
        case "nearest":
            return "LW" if term.number is None else f"{term.number}W"
    return f"{term.weekday}#{'L' if term.number is None else term.number}"
