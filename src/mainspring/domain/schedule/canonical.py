"""Reduces a normalized schedule to its canonical key; options without effect on fires are dropped."""

import msgspec

from mainspring.domain.duration import calendar_days
from mainspring.domain.schedule.cron import Cron, CronError, parse_cron, split_zone
from mainspring.domain.schedule.key import ScheduleKey, compile_key, encode_key
from mainspring.domain.schedule.normalize import interval_ms, months_of
from mainspring.domain.schedule.rrule_text import RuleError, parse_rule, rule_text
from mainspring.domain.schedule.spec import ScheduleError, ScheduleSpec, read_wall, wall_text
from mainspring.domain.schedule.wallclock import WallClock
from mainspring.domain.schedule.zone import DAY_S, Zone, date_of


def reduce_spec(spec: ScheduleSpec, zone: Zone, anchor_ms: int, seed: str | None) -> ScheduleKey:
    """The key of a recurring schedule. Intervals and rules without a start begin at `anchor_ms`."""
    if spec.cron is not None:
        cron = read_cron(spec.cron, spec.day_and, seed)
        key = ScheduleKey(cron=cron.text, tz=zone.name, day_and=spec.day_and and not cron.dates.starred)
    elif spec.rrule is not None:
        key = rule_key(spec, zone, anchor_ms)
    else:
        key = _every_key(spec, zone, anchor_ms)
    key = msgspec.structs.replace(key, exclude=exclusions(spec, zone))
    if key.every_ms is not None:
        return msgspec.structs.replace(key, tz=zone.name) if key.exclude or spec.calendar else key
    schedule = compile_key(encode_key(key)).parts()[0]
    if zone.name == "UTC" or not (isinstance(schedule, WallClock) and schedule.pattern.fixed):
        return key
    return msgspec.structs.replace(key, gap=spec.gap, overlap_hour=spec.overlap_hour)


def read_cron(text: str, day_and: bool, seed: str | None, pointer: str = "/cron") -> Cron:
    try:
        return parse_cron(text, day_and=day_and, seed=seed)
    except CronError as error:
        raise ScheduleError("bad_cron", pointer, str(error), error.hint) from None


def exclusions(spec: ScheduleSpec, zone: Zone) -> tuple[str, ...]:
    """In normal form: masks as six fields, so that a minute is excluded with all its seconds; dates and times."""
    found = set()
    for number, text in enumerate(spec.exclude):
        pointer = f"/exclude/{number}"
        if text[:4].isdecimal() and " " not in text.strip():
            wall, is_date = read_wall(text, zone, pointer)
            found.add(wall_text(wall, is_date=is_date))
            continue
        if split_zone(text)[0] is not None:
            hint = "an exclusion is read in the zone of its schedule: remove the prefix"
            raise ScheduleError("bad_schedule", pointer, "an exclusion has no zone of its own", hint)
        mask = read_cron(text, False, None, pointer).text
        if len(mask.split()) == 5:
            mask = f"{'*' if len(text.split()) < 6 else '0'} {mask}"
        found.add(mask)
    return tuple(sorted(found))


def rule_key(spec: ScheduleSpec, zone: Zone, anchor_ms: int) -> ScheduleKey:
    assert spec.rrule is not None
    try:
        rule, until = parse_rule(spec.rrule)
    except RuleError as error:
        raise ScheduleError("bad_rrule", "/rrule", str(error), error.hint) from None
    start = zone.wall_at(-(-anchor_ms // 1000))
    if spec.dtstart is not None:
        start, _ = read_wall(spec.dtstart, zone, "/dtstart")
    last = None
    if until is not None:
        wall, is_date = read_wall(until, zone, "/rrule")
        last = wall_text(wall + DAY_S - 1 if is_date else wall)
    apart = set()
    for number, text in enumerate(spec.exdates):
        wall, is_date = read_wall(text, zone, f"/exdates/{number}")
        apart.add(wall_text(wall, is_date=is_date))
    return ScheduleKey(
        rrule=rule_text(rule), dtstart=wall_text(start), until=last, exdates=tuple(sorted(apart)), tz=zone.name
    )


def days_of(spec: ScheduleSpec, zone: Zone) -> int | None:
    """Whole days, if they follow a wall clock; in UTC every day has 24 hours, so elapsed time is the same."""
    interval_ms(spec)
    return None if zone.name == "UTC" or spec.every is None else calendar_days(spec.every)


def _every_key(spec: ScheduleSpec, zone: Zone, anchor_ms: int) -> ScheduleKey:
    wall = 0 if spec.aligned else zone.wall_at(-(-anchor_ms // 1000))
    if months := months_of(spec):
        when = date_of(wall // DAY_S)
        phase = (when.year * 12 + when.month - 1) % months if not spec.aligned else 0
        return ScheduleKey(every_months=months, phase_months=phase, day=when.day, phase_s=wall % DAY_S, tz=zone.name)
    if days := days_of(spec, zone):
        return ScheduleKey(every_days=days, phase_s=wall % (days * DAY_S), tz=zone.name)
    every = interval_ms(spec)
    return ScheduleKey(every_ms=every, phase_ms=0 if spec.aligned else anchor_ms % every)
