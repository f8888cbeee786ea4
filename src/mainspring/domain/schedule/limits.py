"""Size limits of schedules, checked before anything is parsed."""

from typing import Final

from mainspring.domain.schedule.spec import ScheduleError, ScheduleSpec, ScheduleSpecs, members_of

MAX_MEMBERS: Final = 50
"""Schedules in a list."""
MAX_EXDATES: Final = 500
MAX_EXCLUDE: Final = 50
MAX_TOGETHER: Final = 1_000
"""Entries of `exdates` and `exclude` of all schedules in a list."""
MAX_KEY: Final = 200_000
"""Characters of a schedule in canonical form, with the days of its calendars."""
MAX_CALENDAR_RULE: Final = 200
MAX_FIRES: Final = 10_000

# A list of all minutes is 169 characters; a rule may have several such lists.
MAX_TEXT: Final = {
    "cron": 1_000,
    "rrule": 4_000,
    "every": 64,
    "jitter": 64,
    "timezone": 64,
    "at": 64,
    "dtstart": 64,
    "start_at": 64,
    "end_at": 64,
    "calendar": 128,
}
_MAX_EXDATE: Final = 64
_MAX_EXCLUSION: Final = 1_000


def check_members(specs: ScheduleSpecs) -> None:
    """Raise `ScheduleError` if a list has too many schedules."""
    if not isinstance(specs, ScheduleSpec) and len(specs) > MAX_MEMBERS:
        message = f"{len(specs):,} schedules in one list, at most {MAX_MEMBERS} are allowed"
        hint = "join times in one cron expression (0,15,30 9-17 * * *), or make several jobs"
        raise ScheduleError("schedule_too_large", "", message, hint)
    listed = sum(len(spec.exdates) + len(spec.exclude) for spec in members_of(specs))
    if listed > MAX_TOGETHER:
        message = f"{listed:,} exdates and exclusions in one list, at most {MAX_TOGETHER:,} are allowed"
        raise ScheduleError("schedule_too_large", "", message, "use a calendar for many days")


def check_size(spec: ScheduleSpec) -> None:
    """Raise `ScheduleError` for the first field of a schedule that is too long."""
    for name, most in MAX_TEXT.items():
        _check_length(getattr(spec, name), most, f"/{name}")
    for name, most, longest in (("exdates", MAX_EXDATES, _MAX_EXDATE), ("exclude", MAX_EXCLUDE, _MAX_EXCLUSION)):
        listed = getattr(spec, name)
        if len(listed) > most:
            hint = "use a calendar for many days, or a cron expression that covers them"
            message = f"{len(listed):,} entries, at most {most} are allowed"
            raise ScheduleError("schedule_too_large", f"/{name}", message, hint)
        for number, text in enumerate(listed):
            _check_length(text, longest, f"/{name}/{number}")


def check_key(key: str) -> str:
    """Return the key of a schedule, or raise `ScheduleError` if it is too long."""
    if len(key) <= MAX_KEY:
        return key
    message = (
        f"the schedule with the days of its calendars has {len(key):,} characters, at most {MAX_KEY:,} are allowed"
    )
    hint = "use fewer members, shorter calendars, or rules instead of dates in calendars"
    raise ScheduleError("schedule_too_large", "", message, hint)


def _check_length(text: object, most: int, pointer: str) -> None:
    if isinstance(text, str) and len(text) > most:
        message = f"{len(text):,} characters, at most {most:,} are allowed"
        raise ScheduleError("schedule_too_large", pointer, message, "write it shorter")
