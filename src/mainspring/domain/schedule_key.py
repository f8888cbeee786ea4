"""The key of a schedule: JSON text that is the same for the same times, so that many jobs share one schedule."""

from functools import lru_cache

import msgspec

from mainspring.domain.cron import parse_cron
from mainspring.domain.recurrence import Interval, Once, Schedule, Within
from mainspring.domain.rrule import RulePattern
from mainspring.domain.rrule_text import parse_rule
from mainspring.domain.schedule_spec import read_wall
from mainspring.domain.union import Exclusions, Union, Without
from mainspring.domain.wallclock import CalendarDays, CalendarMonths, Gap, OverlapHour, Pattern, WallClock
from mainspring.domain.zone import DAY_S, Zone, load_zone


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
    union: tuple["Key", ...] = ()


_decode_key = msgspec.json.Decoder(Key).decode


def encode_key(key: Key) -> str:
    return msgspec.json.encode(key).decode()


@lru_cache(maxsize=16_384)
def compile_key(key: str) -> Schedule:
    """The schedule behind a key made by `resolve`."""
    return _compile(_decode_key(key), key)


def covered(zone: Zone, exclude: tuple[str, ...]) -> Exclusions:
    """Exclusions in normal form (see `Key.exclude`) as one value."""
    masks = [parse_cron(text) for text in exclude if " " in text]
    return Exclusions(zone, masks, *_days_and_times(zone, tuple(text for text in exclude if " " not in text)))


def _compile(parts: Key, key: str) -> Schedule:
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
    if parts.start_ms is not None or parts.end_ms is not None:
        found = Within(found, parts.start_ms, parts.end_ms)
    return found


def _pattern(parts: Key, key: str) -> Pattern:
    if parts.cron is not None:
        return parse_cron(parts.cron, day_and=parts.day_and)
    if parts.every_days is not None:
        return CalendarDays(parts.every_days, parts.phase_s or 0)
    if parts.every_months is not None:
        return CalendarMonths(parts.every_months, parts.phase_months or 0, parts.day or 1, parts.phase_s or 0)
    if parts.rrule is not None and parts.dtstart is not None:
        return _rule_pattern(parts.rrule, parts.dtstart, parts)
    raise ValueError(f"not the key of a schedule: {key}")


def _rule_pattern(text: str, dtstart: str, parts: Key) -> RulePattern:
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
