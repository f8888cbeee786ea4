"""What a schedule means: checked when a job is saved, then asked for its fires.

    ScheduleSpec --resolve--> Resolved(key, window) --compile_key--> Schedule.next_after, .between

`ScheduleSpec` is what users write. `resolve` refuses what cannot work and reduces the rest to a *key*: the
same times give the same text, so that a million jobs "every minute" share one schedule. Instants are integer
milliseconds since the epoch.
"""

import re
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal, Protocol

import msgspec

from mainspring.domain.cron import Cron, CronError, parse_cron, split_zone
from mainspring.domain.duration import calendar_days, parse_duration, spell_duration
from mainspring.domain.zone import (
    DAY_S,
    EVERY_PASS,
    FIRST_PASS,
    NO_SEGMENT,
    SECOND_PASS,
    Segment,
    Zone,
    ZoneError,
    load_zone,
)

Gap = Literal["next_valid", "skip"]
OverlapHour = Literal["first", "second", "both"]
ErrorCode = Literal[
    "bad_cron", "bad_duration", "unknown_zone", "past_time", "never_fires", "bad_window", "bad_schedule"
]

_SEARCH_MS: Final = 50 * 366 * DAY_S * 1000
_NOTES_AT_MOST: Final = 4
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PASSES: Final = {"first": FIRST_PASS, "second": SECOND_PASS, "both": EVERY_PASS}
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(?P<offset>Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)


class ScheduleSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a job fires: exactly one of `cron`, `every` and `at`, and how to read it."""

    cron: str | None = None
    every: str | int | float | None = None
    at: str | None = None
    timezone: str | None = None
    aligned: bool = False
    gap: Gap = "next_valid"
    overlap_hour: OverlapHour = "first"
    day_and: bool = False
    start_at: str | None = None
    end_at: str | None = None
    run_if_late: bool = False


class Resolved(msgspec.Struct, frozen=True):
    """A checked schedule: the key of its recurring times, or one instant; and its inclusive window."""

    key: str | None
    at_ms: int | None
    start_ms: int | None
    end_ms: int | None


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    cron: str | None = None
    every_ms: int | None = None
    phase_ms: int | None = None
    every_days: int | None = None
    phase_s: int | None = None
    tz: str = "UTC"
    gap: Gap = "next_valid"
    overlap_hour: OverlapHour = "first"
    day_and: bool = False


_decode_key = msgspec.json.Decoder(_Key).decode


class ScheduleError(ValueError):
    """A schedule that cannot be accepted: where (`pointer`), why (`message`), and what to do (`hint`)."""

    def __init__(self, code: ErrorCode, pointer: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.message = message
        self.hint = hint


class Schedule(ABC):
    """Strictly increasing UTC instants."""

    __slots__ = ()

    @abstractmethod
    def next_after(self, ms: int) -> int | None:
        """The first fire strictly after `ms`; None if there is none within 50 years."""

    @abstractmethod
    def prev_before(self, ms: int) -> int | None:
        """The last fire strictly before `ms`; None if there is none within 50 years."""

    @abstractmethod
    def describe(self) -> str:
        """The schedule as words: "at 02:00 every day (Europe/Berlin)"."""

    def between(self, start_ms: int, end_ms: int, limit: int) -> list[int]:
        """The first `limit` fires after `start_ms`, up to and including `end_ms`."""
        fires: list[int] = []
        fire = self.next_after(start_ms)
        while fire is not None and fire <= end_ms and len(fires) < limit:
            fires.append(fire)
            fire = self.next_after(fire)
        return fires


class Interval(Schedule):
    """Elapsed time, whatever the wall clock does."""

    __slots__ = ("_every", "_phase")

    def __init__(self, every_ms: int, phase_ms: int) -> None:
        self._every, self._phase = every_ms, phase_ms

    def next_after(self, ms: int) -> int:
        return ms + self._every - (ms - self._phase) % self._every

    def prev_before(self, ms: int) -> int:
        return ms - 1 - (ms - 1 - self._phase) % self._every

    def describe(self) -> str:
        return f"every {spell_duration(self._every / 1000)}"


class Pattern(Protocol):
    """Wall times that match; `fixed` ones are made up for when skipped and not repeated when shown twice."""

    @property
    def fixed(self) -> bool: ...
    @property
    def every_hour(self) -> bool: ...
    def next_wall(self, wall: int) -> int | None: ...
    def prev_wall(self, wall: int) -> int | None: ...
    def describe(self) -> str: ...


class CalendarDays:
    """The same wall time every n days."""

    __slots__ = ("_days", "_phase")
    fixed = True
    every_hour = False

    def __init__(self, days: int, phase_s: int) -> None:
        self._days, self._phase = days, phase_s

    def next_wall(self, wall: int) -> int:
        return wall + (self._phase - wall) % (self._days * DAY_S)

    def prev_wall(self, wall: int) -> int:
        return wall - (wall - self._phase) % (self._days * DAY_S)

    def describe(self) -> str:
        time = self._phase % DAY_S
        clock = f"{time // 3600:02}:{time // 60 % 60:02}" + (f":{time % 60:02}" if time % 60 else "")
        return f"at {clock} every {spell_duration(self._days * DAY_S)}"


class WallClock(Schedule):
    """A pattern of wall times in a zone, with a rule for skipped and for repeated ones."""

    __slots__ = ("_fill_gaps", "_last", "counted_pass", "pattern", "zone")

    def __init__(self, pattern: Pattern, zone: Zone, gap: Gap, overlap_hour: OverlapHour) -> None:
        self.pattern, self.zone = pattern, zone
        self._fill_gaps = pattern.fixed and gap == "next_valid"
        self.counted_pass = _PASSES[overlap_hour] if pattern.fixed else EVERY_PASS
        self._last = NO_SEGMENT

    def next_after(self, ms: int) -> int | None:
        instant = ms // 1000 + 1
        segment = self._last
        if not segment.start <= instant < segment.end:
            segment = self._last = self.zone.segment_at(instant)
        low, high = segment.windows[self.counted_pass]
        offset = segment.offset
        wall = instant + offset
        if wall > low:  # the rest of a segment: nearly every call ends here
            found = self.pattern.next_wall(wall)
            if found is None:
                return None
            if found < high:
                return (found - offset) * 1000
            instant = self._skip(segment, found)
        return self._next_from_start(instant, ms + _SEARCH_MS)

    def prev_before(self, ms: int) -> int | None:
        instant = (ms - 1) // 1000
        while instant * 1000 > ms - _SEARCH_MS:
            segment = self.zone.segment_at(instant)
            low, high = segment.windows[self.counted_pass]
            found = self.pattern.prev_wall(min(instant + segment.offset, high - 1))
            if found is not None and found >= low:
                return (found - segment.offset) * 1000
            if self.fires_for_gap(segment):
                return segment.start * 1000
            instant = segment.start - 1
        return None

    def describe(self) -> str:
        where = "" if self.zone.name == "UTC" else f" ({self.zone.name})"
        return self.pattern.describe() + where

    def fires_for_gap(self, segment: Segment) -> bool:
        """Whether fires that were skipped just before `segment` are made up for at its first instant."""
        if not self._fill_gaps or not 0 < segment.gap_until - segment.gap_from < DAY_S:
            return False
        found = self.pattern.next_wall(segment.gap_from)
        return found is not None and found < segment.gap_until

    def _next_from_start(self, instant: int, until_ms: int) -> int | None:
        """The first fire at or after `instant`, segment by segment."""
        while instant * 1000 <= until_ms:
            segment = self.zone.segment_at(instant)
            if instant == segment.start and self.fires_for_gap(segment):
                return instant * 1000
            low, high = segment.windows[self.counted_pass]
            found = self.pattern.next_wall(max(instant + segment.offset, low))
            if found is None:
                return None
            if found < high:
                return (found - segment.offset) * 1000
            instant = self._skip(segment, found)
        return None

    def _skip(self, segment: Segment, found: int) -> int:
        """Where to go on when the next match is beyond `segment`: rare fires pass over years at once."""
        return max(segment.end, self.zone.segment_at(found - 2 * DAY_S).start)


@lru_cache(maxsize=65_536)
def compile_key(key: str) -> Schedule:
    """The schedule behind a key made by `resolve`."""
    parts = _decode_key(key)
    if parts.every_ms is not None:
        return Interval(parts.every_ms, parts.phase_ms or 0)
    pattern: Pattern
    if parts.cron is not None:
        pattern = parse_cron(parts.cron, day_and=parts.day_and)
    elif parts.every_days is not None:
        pattern = CalendarDays(parts.every_days, parts.phase_s or 0)
    else:
        raise ValueError(f"not the key of a schedule: {key}")
    return WallClock(pattern, load_zone(parts.tz), parts.gap, parts.overlap_hour)


def resolve(spec: ScheduleSpec, *, now_ms: int) -> Resolved:
    """Check a schedule as of `now_ms`; raises `ScheduleError` for the first thing that cannot work."""
    spec, zone = _settle(spec)
    start = None if spec.start_at is None else _read_time(spec.start_at, zone, "/start_at", date_only=True)
    end = None if spec.end_at is None else _read_time(spec.end_at, zone, "/end_at", take_last=True)
    if start is not None and end is not None and end <= start:
        raise ScheduleError("bad_window", "/end_at", "end_at is not after start_at", "choose a later end_at")
    if spec.at is not None:
        return Resolved(None, _resolve_at(spec, spec.at, zone, start, end, now_ms), start, end)
    if end is not None and end <= now_ms:
        raise ScheduleError("past_time", "/end_at", "end_at is in the past", "choose a later end_at, or none")
    parts = _cron_key(spec, zone) if spec.cron is not None else _every_key(spec, zone, start, now_ms)
    key = msgspec.json.encode(parts).decode()
    _check_fires(compile_key(key), "/cron" if spec.cron is not None else "/every", start, end, now_ms)
    return Resolved(key, None, start, end)


def describe_spec(spec: ScheduleSpec) -> str:
    """A schedule as words, with its window: "every 10 minutes from 2027-01-01"."""
    spec, zone = _settle(spec)
    where = "" if zone.name == "UTC" else f" ({zone.name})"
    if spec.at is not None:
        _read_time(spec.at, zone, "/at")
        text = f"once at {spec.at}{where}"
    elif spec.cron is not None:
        text = _parse_cron(spec.cron, spec.day_and).describe() + where
    else:
        days = _calendar_days(spec, zone)
        text = f"every {spell_duration(days * DAY_S if days else _interval_ms(spec) / 1000)}"
        text += where if days else ""
    text += f" from {spec.start_at}" if spec.start_at else ""
    return text + (f" until {spec.end_at}" if spec.end_at else "")


def notes(key: str, after_ms: int, horizon_days: int = 400) -> list[str]:
    """What clock changes do to the coming fires, a few sentences at most."""
    schedule = compile_key(key)
    # Nobody is surprised that an hourly job goes by the hour.
    if not isinstance(schedule, WallClock) or (not schedule.pattern.fixed and schedule.pattern.every_hour):
        return []
    first, found = after_ms // 1000, []
    for segment in schedule.zone.segments_between(first, first + horizon_days * DAY_S):
        if segment.start > first:
            found += _gap_note(schedule, segment) + _repeat_note(schedule, segment)
    return found[:_NOTES_AT_MOST]


def _gap_note(schedule: WallClock, segment: Segment) -> list[str]:
    missing = _matches(schedule.pattern, segment.gap_from, segment.gap_until)
    if not missing:
        return []
    what = "does not fire"
    if schedule.fires_for_gap(segment):
        what = f"fires {'once, ' if len(missing) > 1 else ''}at {_clock(segment.gap_until)[-5:]}"
    return [f"{_span(missing)} {_verb(missing, 'do')} not exist in {schedule.zone.name}: {what}"]


def _repeat_note(schedule: WallClock, segment: Segment) -> list[str]:
    twice = _matches(schedule.pattern, segment.repeat_from, segment.repeat_until)
    if not twice:
        return []
    which = {FIRST_PASS: "the first time", SECOND_PASS: "the second time", EVERY_PASS: "both times"}
    what = which[schedule.counted_pass]
    return [f"{_span(twice)} {_verb(twice, 'happen')} twice in {schedule.zone.name}: fires {what}"]


def _matches(pattern: Pattern, low: int, high: int) -> list[int]:
    """First and last matching wall time in `[low, high)`."""
    first, last = pattern.next_wall(low), pattern.prev_wall(high - 1)
    if low >= high or first is None or last is None or first >= high:
        return []
    return [first] if first == last else [first, last]


def _span(walls: list[int]) -> str:
    return " to ".join([_clock(walls[0]), *(_clock(wall)[-5:] for wall in walls[1:])])


def _verb(walls: list[int], verb: str) -> str:
    return verb if len(walls) > 1 else {"do": "does", "happen": "happens"}[verb]


def _clock(wall: int) -> str:
    return (_EPOCH + timedelta(seconds=wall)).strftime("%Y-%m-%d %H:%M")


def _settle(spec: ScheduleSpec) -> tuple[ScheduleSpec, Zone]:
    """The spec with its kind checked and other spellings resolved, and its zone."""
    if [spec.cron, spec.every, spec.at].count(None) != 2:
        message = "a schedule has exactly one of cron, every and at"
        raise ScheduleError("bad_schedule", "", message, 'for example {"cron": "0 2 * * *"}')
    zone_name, pointer = spec.timezone, "/timezone"
    if spec.cron is not None:
        prefix, text = split_zone(spec.cron)
        if prefix is not None and zone_name not in (None, prefix):
            message = f"timezone {zone_name} contradicts the prefix {prefix} of the cron expression"
            raise ScheduleError("bad_schedule", "/timezone", message, "keep one of the two")
        if prefix is not None:
            zone_name, pointer = prefix, "/cron"
        spec = _without_macro(msgspec.structs.replace(spec, cron=text))
    _check_options(spec)
    try:
        return spec, load_zone("UTC" if zone_name is None else zone_name)
    except ZoneError as error:
        raise ScheduleError("unknown_zone", pointer, str(error), error.hint) from None


def _without_macro(spec: ScheduleSpec) -> ScheduleSpec:
    """`@every 10m` written as cron becomes `every`."""
    assert spec.cron is not None
    words = spec.cron.split(None, 1)
    if not words or words[0].lower() != "@every":
        return spec
    spec = msgspec.structs.replace(spec, cron=None, every=words[1] if len(words) > 1 else "")
    try:
        _interval_ms(spec)
    except ScheduleError as error:
        raise ScheduleError(error.code, "/cron", error.message, error.hint) from None
    return spec


def _check_options(spec: ScheduleSpec) -> None:
    kind = "cron" if spec.cron is not None else "every" if spec.every is not None else "at"
    for name, given, belongs_to in (
        ("aligned", spec.aligned, "every"),
        ("day_and", spec.day_and, "cron"),
        ("run_if_late", spec.run_if_late, "at"),
    ):
        if given and kind != belongs_to:
            message = f"{name} has no meaning beside {kind}"
            raise ScheduleError("bad_schedule", f"/{name}", message, f"remove it; it belongs to {belongs_to}")
    if kind == "at" and spec.overlap_hour == "both":
        hint = "choose first or second"
        raise ScheduleError("bad_schedule", "/overlap_hour", "a one-time schedule fires once", hint)


def _resolve_at(
    spec: ScheduleSpec, text: str, zone: Zone, start: int | None, end: int | None, now_ms: int
) -> int:
    take_last = spec.overlap_hour == "second"
    at = _read_time(text, zone, "/at", take_last=take_last, in_gap=spec.gap)
    if at <= now_ms and not spec.run_if_late:
        hint = "choose a later time, or set run_if_late to run it at once"
        raise ScheduleError("past_time", "/at", f"{text} is in the past", hint)
    if (start is not None and at < start) or (end is not None and at > end):
        hint = "move it inside, or leave start_at and end_at out"
        raise ScheduleError("bad_window", "/at", f"{text} is outside start_at and end_at", hint)
    return at


def _cron_key(spec: ScheduleSpec, zone: Zone) -> _Key:
    """The key of a cron schedule, without the options that change nothing, so that more jobs share it."""
    assert spec.cron is not None
    cron = _parse_cron(spec.cron, spec.day_and)
    shifts = cron.fixed and zone.name != "UTC"
    return _Key(
        cron=cron.text,
        tz=zone.name,
        gap=spec.gap if shifts else "next_valid",
        overlap_hour=spec.overlap_hour if shifts else "first",
        day_and=spec.day_and and not cron.days_starred,
    )


def _every_key(spec: ScheduleSpec, zone: Zone, start: int | None, now_ms: int) -> _Key:
    anchor = now_ms - now_ms % 1000 if start is None else start
    days = _calendar_days(spec, zone)
    if days:
        wall = 0 if spec.aligned else zone.wall_at(-(-anchor // 1000))
        phase = wall % (days * DAY_S)
        return _Key(
            every_days=days, phase_s=phase, tz=zone.name, gap=spec.gap, overlap_hour=spec.overlap_hour
        )
    every = _interval_ms(spec)
    return _Key(every_ms=every, phase_ms=0 if spec.aligned else anchor % every)


def _calendar_days(spec: ScheduleSpec, zone: Zone) -> int | None:
    """Whole days, if they follow a wall clock; in UTC every day has 24 hours, so elapsed time is the same."""
    _interval_ms(spec)
    return None if zone.name == "UTC" or spec.every is None else calendar_days(spec.every)


def _interval_ms(spec: ScheduleSpec) -> int:
    assert spec.every is not None
    try:
        every = round(parse_duration(spec.every) * 1000)
    except ValueError as error:
        raise ScheduleError("bad_duration", "/every", str(error), "for example 10m or PT3H") from None
    if not 1000 <= every <= _SEARCH_MS:
        hint = "an interval is at least 1 second and at most 50 years"
        raise ScheduleError("bad_duration", "/every", f"every {spec.every} is not possible", hint)
    return every


def _parse_cron(text: str, day_and: bool) -> Cron:
    try:
        return parse_cron(text, day_and=day_and)
    except CronError as error:
        raise ScheduleError("bad_cron", "/cron", str(error), error.hint) from None


def _check_fires(schedule: Schedule, pointer: str, start: int | None, end: int | None, now_ms: int) -> None:
    after = now_ms if start is None else max(now_ms, start - 1)
    fire = schedule.next_after(after)
    if fire is None:
        hint = "check day and month: 31 February never comes, 29 February only in leap years"
        message = f"never fires: no match within 50 years ({schedule.describe()})"
        raise ScheduleError("never_fires", pointer, message, hint)
    if end is not None and fire > end:
        first = (_EPOCH + timedelta(milliseconds=fire)).isoformat()
        message = "never fires before end_at"
        raise ScheduleError("never_fires", "/end_at", message, f"the first fire would be at {first}")


def _read_time(
    text: str, zone: Zone, pointer: str, *, date_only: bool = False, take_last: bool = False,
    in_gap: Gap = "next_valid",
) -> int:  # fmt: skip
    """The instant of a timestamp; without an offset it is a wall time of `zone`."""
    shape = _TIMESTAMP.fullmatch(text.strip())
    if shape is None or (shape["time"] is None and not date_only):
        lacks = "" if shape is None else ": the time of day is missing"
        hint = "write for example 2027-03-01T09:00:00, with Z or an offset if it is not a time of the zone"
        raise ScheduleError("bad_schedule", pointer, f"{text!r} is not a timestamp{lacks}", hint)
    try:
        when = datetime.fromisoformat(shape[0].upper())
    except ValueError as error:
        raise ScheduleError("bad_schedule", pointer, f"{text!r}: {error}", "check the date") from None
    if when.year < 1970 or (when.year > 2999 and pointer != "/end_at"):
        raise ScheduleError(
            "bad_schedule", pointer, f"{text}: the year is out of range", "write 1970 to 2999"
        )
    wall, fraction = _since_epoch(when.replace(tzinfo=UTC) if when.tzinfo is None else when)
    if when.tzinfo is not None:
        return wall * 1000 + fraction
    instants = zone.instants_of(wall)
    if instants:
        return instants[-1 if take_last else 0] * 1000 + fraction
    if in_gap == "skip":
        message = f"{text} does not exist in {zone.name}: the clocks skip it"
        raise ScheduleError("never_fires", pointer, message, "choose another time, or gap: next_valid")
    return zone.first_after_gap(wall) * 1000


def _since_epoch(when: datetime) -> tuple[int, int]:
    return divmod((when - _EPOCH) // timedelta(milliseconds=1), 1000)
