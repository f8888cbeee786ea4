"""Normalizes a schedule: kind, zone, alternative spellings; refuses options without effect."""

import msgspec

from mainspring.domain.duration import calendar_months, parse_duration
from mainspring.domain.schedule.cron import split_zone
from mainspring.domain.schedule.limits import MAX_FIRES, check_size
from mainspring.domain.schedule.recurrence import SEARCH_MS
from mainspring.domain.schedule.spec import ScheduleError, ScheduleSpec, kind_of
from mainspring.domain.schedule.zone import Zone, ZoneError, load_zone

_MOST_MONTHS = 600
_MOST_JITTER_S = 86_400


def normalize_spec(spec: ScheduleSpec) -> tuple[str, ScheduleSpec, Zone]:
    """Return the kind, the spec with alternative spellings resolved, and its zone."""
    check_size(spec)
    kind = kind_of(spec)
    zone_name, pointer = spec.timezone, "/timezone"
    if spec.cron is not None:
        prefix, text = split_zone(spec.cron)
        if prefix is not None and zone_name not in (None, prefix):
            message = f"timezone {zone_name} contradicts the prefix {prefix} of the cron expression"
            raise ScheduleError("bad_schedule", "/timezone", message, "keep one of the two")
        if prefix is not None:
            zone_name, pointer = prefix, "/cron"
        spec = _without_macro(msgspec.structs.replace(spec, cron=text))
        kind = kind_of(spec)
    _check_options(kind, spec)
    try:
        return kind, spec, load_zone("UTC" if zone_name is None else zone_name)
    except ZoneError as error:
        raise ScheduleError("unknown_zone", pointer, str(error), error.hint) from None


def months_of(spec: ScheduleSpec) -> int | None:
    """Months between fires if `every` is given in months or years, else None."""
    assert spec.every is not None
    months = calendar_months(spec.every)
    if months is not None and not 1 <= months <= _MOST_MONTHS:
        hint = "an interval is at least 1 second and at most 50 years"
        raise ScheduleError("bad_duration", "/every", f"every {spec.every} is not possible", hint)
    return months


def interval_ms(spec: ScheduleSpec) -> int:
    """Elapsed time between fires, where `every` is not in months."""
    assert spec.every is not None
    try:
        every = round(parse_duration(spec.every) * 1000)
    except ValueError as error:
        raise ScheduleError("bad_duration", "/every", str(error), "for example 10m, PT3H or 1mo") from None
    if not 1000 <= every <= SEARCH_MS:
        hint = "an interval is at least 1 second and at most 50 years"
        raise ScheduleError("bad_duration", "/every", f"every {spec.every} is not possible", hint)
    return every


def jitter_of(spec: ScheduleSpec) -> int:
    """The maximum jitter in milliseconds; 0 if there is none."""
    if spec.jitter is None:
        return 0
    try:
        jitter_s = parse_duration(spec.jitter)
    except ValueError as error:
        raise ScheduleError("bad_duration", "/jitter", str(error), "for example 30s or PT5M") from None
    if not 0.001 <= jitter_s <= _MOST_JITTER_S:
        hint = "a jitter is at least 1 millisecond and at most 24 hours"
        raise ScheduleError("bad_duration", "/jitter", f"jitter {spec.jitter} is not possible", hint)
    return round(jitter_s * 1000)


def _without_macro(spec: ScheduleSpec) -> ScheduleSpec:
    """`@every 10m` written as cron becomes `every`."""
    assert spec.cron is not None
    words = spec.cron.split(None, 1)
    if not words or words[0].lower() != "@every":
        return spec
    spec = msgspec.structs.replace(spec, cron=None, every=words[1] if len(words) > 1 else "")
    try:
        months_of(spec) or interval_ms(spec)
    except ScheduleError as error:
        raise ScheduleError(error.code, "/cron", error.message, error.hint) from None
    return spec


def _check_options(kind: str, spec: ScheduleSpec) -> None:
    for name, belongs_to in (
        ("aligned", "every"),
        ("day_and", "cron"),
        ("run_if_late", "at"),
        ("dtstart", "rrule"),
        ("exdates", "rrule"),
    ):
        if getattr(spec, name) and kind != belongs_to:
            message = f"{name} has no meaning beside {kind}"
            raise ScheduleError("bad_schedule", f"/{name}", message, f"remove it; it belongs to {belongs_to}")
    if kind == "at" and spec.overlap_hour == "both":
        hint = "choose first or second"
        raise ScheduleError("bad_schedule", "/overlap_hour", "a one-time schedule fires once", hint)
    for name in ("exclude", "calendar", "roll", "jitter", "max_fires"):
        if kind == "at" and getattr(spec, name) not in (None, ()):
            raise ScheduleError("bad_schedule", f"/{name}", f"{name} has no meaning beside at", "remove it")
    if spec.roll is not None and spec.calendar is None:
        hint = "name the calendar whose open days count, or remove roll"
        raise ScheduleError("bad_schedule", "/roll", "roll has no meaning without calendar", hint)
    if spec.max_fires is not None and not 1 <= spec.max_fires <= MAX_FIRES:
        hint = f"1 to {MAX_FIRES:,}; for more, say end_at"
        raise ScheduleError("bad_schedule", "/max_fires", f"max_fires {spec.max_fires} is not possible", hint)
