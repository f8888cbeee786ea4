"""Schedule keys: canonical JSON, equal for equal times, so many jobs share one schedule."""

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Final, Literal

import msgspec

from mainspring.domain.schedule.budget import TooCostly, spend
from mainspring.domain.schedule.calendar import Calendar, Roll, on_calendar, rule_text
from mainspring.domain.schedule.cron import parse_cron
from mainspring.domain.schedule.recurrence import Interval, Metered, Once, Schedule, Within
from mainspring.domain.schedule.rrule import RulePattern
from mainspring.domain.schedule.rrule_text import parse_rule
from mainspring.domain.schedule.spec import read_wall
from mainspring.domain.schedule.union import Exclusions, Union, Without
from mainspring.domain.schedule.wallclock import CalendarDays, CalendarMonths, Gap, OverlapHour, Pattern, WallClock
from mainspring.domain.schedule.zone import DAY_S, Zone, load_zone


class CalendarContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a calendar in canonical form. It is part of the key, so keys are self-contained."""

    name: str
    dates: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    mode: Literal["exclude", "include"] = "exclude"


class ScheduleKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    cron: str | None = None
    every_ms: int | None = None
    phase_ms: int | None = None
    every_days: int | None = None
    phase_s: int | None = None
    tz: str = "UTC"
    gap: Gap = "next_valid"
    overlap_hour: OverlapHour = "first"
    day_and: bool = False
    every_months: int | None = None
    phase_months: int | None = None
    day: int | None = None
    rrule: str | None = None
    dtstart: str | None = None
    until: str | None = None
    exdates: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    at_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    union: tuple["ScheduleKey", ...] = ()
    calendar: CalendarContent | None = None
    roll: Roll | None = None
    last_ms: int | None = None


_decode_key = msgspec.json.Decoder(ScheduleKey).decode


def encode_key(key: ScheduleKey) -> str:
    return msgspec.json.encode(key).decode()


def build_schedule(key: str) -> Schedule:
    """Build the schedule of a key without caching, for callers that go through a million keys."""
    parts = _decode_key(key)
    spend(_COMPILE_STEPS * len(parts.union) + len(key) // 100)
    found = _compile(parts, key)
    return Metered(found) if _walks(parts) else found


_LONG_KEY: Final = 2_000
_COMPILE_STEPS: Final = 10
_compile_short = lru_cache(maxsize=16_384)(build_schedule)
# Keys are the larger part of this cache, and a long one may have 200,000 characters.
_compile_long = lru_cache(maxsize=512)(build_schedule)


def compile_key(key: str) -> Schedule:
    """The schedule of a key, cached."""
    return _compile_short(key) if len(key) <= _LONG_KEY else _compile_long(key)


def days_of_calendar(calendar: Calendar) -> CalendarContent:
    """The canonical content of a calendar."""
    dates = tuple(sorted(when.isoformat() for when in calendar.dates))
    return CalendarContent(
        calendar.name, dates, tuple(sorted({rule_text(rule) for rule in calendar.rules})), calendar.mode
    )


def union_key(members: Iterable[ScheduleKey]) -> str:
    """The key of the union of several schedules, independent of their order."""
    texts = sorted({encode_key(member) for member in members})
    return texts[0] if len(texts) == 1 else encode_key(ScheduleKey(union=tuple(map(_decode_key, texts))))


def counted(key: ScheduleKey, fires: int, after_ms: int) -> ScheduleKey:
    """Limit a key to its n-th fire after an instant."""
    found = compile_key(encode_key(key)).between(after_ms, 1 << 62, fires)
    return msgspec.structs.replace(key, last_ms=found[-1]) if len(found) == fires else key


def with_calendar(key: str, calendar: Calendar, now_ms: int) -> str:
    """The key after an edit of its calendar; a limit on fires keeps its remaining count."""
    parts, days = _decode_key(key), days_of_calendar(calendar)
    return union_key(_with_days(member, days, now_ms) for member in parts.union or (parts,))


def _with_days(parts: ScheduleKey, days: CalendarContent, now_ms: int) -> ScheduleKey:
    if parts.calendar is None or parts.calendar.name != days.name or parts.calendar == days:
        return parts
    changed = msgspec.structs.replace(parts, calendar=days)
    if parts.last_ms is None or parts.last_ms <= now_ms:
        return changed
    try:
        left = compile_key(encode_key(parts)).count_between(now_ms, parts.last_ms)
        return counted(msgspec.structs.replace(changed, last_ms=None), left, now_ms)
    except TooCostly:  # the end stays where it was
        return changed


def covered(zone: Zone, exclude: tuple[str, ...]) -> Exclusions:
    """Exclusions in normal form (see `Key.exclude`) as one value."""
    masks = [parse_cron(text) for text in exclude if " " in text]
    return Exclusions(zone, masks, *_days_and_times(zone, tuple(text for text in exclude if " " not in text)))


def _walks(parts: ScheduleKey) -> bool:
    """Whether an answer may take more than constant time."""
    return bool(parts.union or parts.rrule or parts.exclude or parts.calendar)


def _compile(parts: ScheduleKey, key: str) -> Schedule:
    found: Schedule
    if parts.union:
        found = Union([_compile(member, key) for member in parts.union])
    elif parts.at_ms is not None:
        found = Once(parts.at_ms)
    elif parts.every_ms is not None:
        found = Interval(parts.every_ms, parts.phase_ms or 0)
    else:
        found = WallClock(_pattern(parts, key), load_zone(parts.tz), parts.gap, parts.overlap_hour)
    if parts.exclude:
        found = Without(found, covered(load_zone(parts.tz), parts.exclude))
    if parts.calendar is not None:
        found = on_calendar(found, _calendar(parts.calendar), load_zone(parts.tz), parts.roll)
    if parts.last_ms is not None:
        found = Within(found, None, parts.last_ms)
    if parts.start_ms is not None or parts.end_ms is not None:
        found = Within(found, parts.start_ms, parts.end_ms)
    return found


@lru_cache(maxsize=256)
def _calendar(days: CalendarContent) -> Calendar:
    """One value for all schedules that follow a calendar: it keeps the months that it has looked at."""
    return Calendar(days.name, frozenset(map(date.fromisoformat, days.dates)), days.rules, days.mode)


def _pattern(parts: ScheduleKey, key: str) -> Pattern:
    if parts.cron is not None:
        return parse_cron(parts.cron, day_and=parts.day_and)
    if parts.every_days is not None:
        return CalendarDays(parts.every_days, parts.phase_s or 0)
    if parts.every_months is not None:
        return CalendarMonths(parts.every_months, parts.phase_months or 0, parts.day or 1, parts.phase_s or 0)
    if parts.rrule is not None and parts.dtstart is not None:
        return _rule_pattern(parts.rrule, parts.dtstart, parts)
    raise ValueError(f"not the key of a schedule: {key}")


def _rule_pattern(text: str, dtstart: str, parts: ScheduleKey) -> RulePattern:
    zone = load_zone(parts.tz)
    rule, _ = parse_rule(text)
    if parts.until is not None:
        rule = rule._replace(until=read_wall(parts.until, zone, "/rrule")[0])
    days, times = _days_and_times(zone, parts.exdates)
    return RulePattern(rule, read_wall(dtstart, zone, "/dtstart")[0], times, days)


def _days_and_times(zone: Zone, texts: tuple[str, ...]) -> tuple[frozenset[int], frozenset[int]]:
    """Dates as day numbers, timestamps as wall times."""
    found = [read_wall(text, zone, "") for text in texts]
    days = frozenset(wall // DAY_S for wall, is_date in found if is_date)
    return days, frozenset(wall for wall, is_date in found if not is_date)
