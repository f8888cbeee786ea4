"""Schedule definitions as users write them, and their validation errors."""

import re
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Final, Literal

import msgspec

from mainspring.domain.schedule.calendar import Roll
from mainspring.domain.schedule.wallclock import Gap, OverlapHour
from mainspring.domain.schedule.zone import Zone

ErrorCode = Literal[
    "bad_cron",
    "bad_rrule",
    "bad_duration",
    "unknown_zone",
    "past_time",
    "never_fires",
    "bad_window",
    "bad_schedule",
    "unknown_calendar",
    "schedule_too_large",
    "schedule_too_costly",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(?P<offset>Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)


class ScheduleSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When a job fires: exactly one of `cron`, `every`, `at` and `rrule`, and how to read it.

    A date as `start_at` or `at` is its midnight in the time zone; a date as `end_at` includes the whole day.
    """

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
    rrule: str | None = None
    dtstart: str | None = None
    exdates: tuple[str, ...] = ()
    """Dates or timestamps at which a rule does not fire; at most 500."""
    exclude: tuple[str, ...] = ()
    """Cron expressions, dates or timestamps, at most 50: no fire whose wall time one of them covers."""
    calendar: str | None = None
    """A calendar by name: no fire on its closed days, or, with `roll`, on the next or previous open day instead."""
    roll: Roll | None = None
    jitter: str | int | float | None = None
    """Maximum start delay. Each execution has a fixed delay up to it; `fire_at` does not change."""
    max_fires: int | None = None
    """The number of fires after the schedule was saved, regardless of their outcomes."""


ScheduleSpecs = ScheduleSpec | list[ScheduleSpec]
"""One schedule, or up to 50 whose fires are taken together."""


class Resolved(msgspec.Struct, frozen=True):
    """A checked schedule: the key of its recurring times, or one instant; and its inclusive window."""

    key: str | None
    at_ms: int | None
    start_ms: int | None
    end_ms: int | None
    jitter_ms: int = 0


class ScheduleError(ValueError):
    """A schedule that cannot be accepted: where (`pointer`), why (`message`), and what to do (`hint`)."""

    def __init__(self, code: ErrorCode, pointer: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.message = message
        self.hint = hint


def members_of(specs: ScheduleSpecs | None) -> list[ScheduleSpec]:
    """The schedules that are taken together: several, one or none."""
    return [] if specs is None else [specs] if isinstance(specs, ScheduleSpec) else specs


def is_one_time(specs: ScheduleSpecs | None) -> bool:
    """Whether the schedule is a single `at`."""
    return len(set(members_of(specs))) == 1 and members_of(specs)[0].at is not None


def calendars_of(specs: ScheduleSpecs | None) -> list[str]:
    """The names of the calendars that a schedule follows, in order."""
    return sorted({spec.calendar for spec in members_of(specs) if spec.calendar is not None})


def kind_of(spec: ScheduleSpec) -> str:
    """Which of the four kinds is given."""
    given = [kind for kind in ("cron", "every", "at", "rrule") if getattr(spec, kind) is not None]
    if len(given) != 1:
        message = "a schedule has exactly one of cron, every, at and rrule"
        raise ScheduleError("bad_schedule", "", message, 'for example {"cron": "0 2 * * *"}')
    return given[0]


def read_instant(
    text: str,
    zone: Zone,
    pointer: str,
    *,
    date_only: bool = False,
    take_last: bool = False,
    in_gap: Gap = "next_valid",
) -> int:
    """The instant of a timestamp in milliseconds; without an offset it is a wall time of `zone`."""
    when = _read(text, pointer, date_only=date_only)
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


def read_end(text: str, zone: Zone, pointer: str) -> int:
    """The last instant of a window in milliseconds; a date includes the whole day in `zone`."""
    if _TIMESTAMP.fullmatch(text.strip()) and len(text.strip()) == len("2027-01-01"):
        day = _read(text, pointer, date_only=True)
        if day.year < MAXYEAR:
            wall, _ = _since_epoch((day + timedelta(days=1)).replace(tzinfo=UTC))
            instants = zone.instants_of(wall)
            return (instants[0] if instants else zone.first_after_gap(wall)) * 1000 - 1
    return read_instant(text, zone, pointer, take_last=True)


def read_wall(text: str, zone: Zone, pointer: str) -> tuple[int, bool]:
    """A timestamp as wall time of `zone` in whole seconds, and whether it is a date alone."""
    when = _read(text, pointer, date_only=True)
    wall, _ = _since_epoch(when.replace(tzinfo=UTC) if when.tzinfo is None else when)
    is_date = len(text.strip()) == len("2027-01-01")
    return (wall if when.tzinfo is None else zone.wall_at(wall)), is_date


def wall_text(wall: int, *, is_date: bool = False) -> str:
    """A wall time as `read_wall` reads it."""
    when = EPOCH + timedelta(seconds=wall)
    return when.strftime("%Y-%m-%d" if is_date else "%Y-%m-%dT%H:%M:%S")


def _read(text: str, pointer: str, *, date_only: bool) -> datetime:
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
        raise ScheduleError("bad_schedule", pointer, f"{text}: the year is out of range", "write 1970 to 2999")
    return when


def _since_epoch(when: datetime) -> tuple[int, int]:
    return divmod((when - EPOCH) // timedelta(milliseconds=1), 1000)
