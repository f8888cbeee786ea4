"""Schedules: validated when a job is saved, then queried for fires.

    ScheduleSpec --resolve--> Resolved(key, window) --compile_key--> Schedule.next_after, .between

`ScheduleSpec` is what users write. `resolve` refuses what cannot work and reduces the rest to a *key*: the
same times give the same text, so that a million jobs "every minute" share one schedule. Instants are integer
milliseconds since the epoch.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from mainspring.domain.duration import spell_duration
from mainspring.domain.schedule.budget import REQUEST_STEPS, SAVE_STEPS, TooCostly, steps
from mainspring.domain.schedule.calendar import Calendar, OpenDays, Rolled
from mainspring.domain.schedule.canonical import days_of, exclusions, read_cron, reduce_spec, rule_key
from mainspring.domain.schedule.dst_notes import clock_changes, stands_for
from mainspring.domain.schedule.key import (
    ScheduleKey,
    build_schedule,
    compile_key,
    counted,
    covered,
    days_of_calendar,
    encode_key,
    union_key,
    with_calendar,
)
from mainspring.domain.schedule.limits import check_key, check_members
from mainspring.domain.schedule.normalize import interval_ms, jitter_of, months_of, normalize_spec
from mainspring.domain.schedule.recurrence import Interval, Metered, Schedule
from mainspring.domain.schedule.rrule_text import parse_rule
from mainspring.domain.schedule.spec import (
    EPOCH,
    ErrorCode,
    Resolved,
    ScheduleError,
    ScheduleSpec,
    ScheduleSpecs,
    calendars_of,
    is_one_time,
    members_of,
    read_end,
    read_instant,
)
from mainspring.domain.schedule.union import Without, described_together
from mainspring.domain.schedule.wallclock import Gap, OverlapHour, WallClock
from mainspring.domain.schedule.zone import DAY_S, Zone

__all__ = [
    "ErrorCode", "Gap", "Interval", "OverlapHour", "Resolved", "Schedule", "ScheduleError", "ScheduleSpec",
    "ScheduleSpecs", "WallClock", "bounded_key", "build_schedule", "calendars_of", "check_cost", "compile_key",
    "describe_spec", "is_one_time", "job_seed", "members_of", "notes", "resolve", "resolve_all", "stands_for",
    "too_costly", "with_calendar", "zone_of",
]  # fmt: skip

NO_CALENDARS: Final[Mapping[str, Calendar]] = MappingProxyType({})
# The fires whose cost is checked when a schedule is saved.
_CHECKED_FIRES: Final = 8
_HASH = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])", re.IGNORECASE)


def job_seed(tenant: int, name: str) -> str:
    """What `H` in a job's cron expression is derived from."""
    return f"{tenant}/{name}"


def zone_of(specs: ScheduleSpecs | None) -> str:
    """The zone that a schedule is read in; UTC if its members differ."""
    zones = {normalize_spec(spec)[2].name for spec in members_of(specs)}
    return zones.pop() if len(zones) == 1 else "UTC"


def resolve(
    spec: ScheduleSpec,
    *,
    now_ms: int,
    seed: str | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
    since_ms: int | None = None,
) -> Resolved:
    """Check a schedule as of `now_ms`; raises `ScheduleError` for the first thing that cannot work.

    `seed` is what `H` in a cron expression is derived from; see `job_seed`. `calendars` has those it may name. With
    `since_ms`, it is enough that it fires after that instant: a preview may look into the past.
    """
    judged_ms = now_ms if since_ms is None else min(now_ms, since_ms)
    kind, spec, zone = normalize_spec(spec)
    start = None if spec.start_at is None else read_instant(spec.start_at, zone, "/start_at", date_only=True)
    end = None if spec.end_at is None else read_end(spec.end_at, zone, "/end_at")
    if start is not None and end is not None and end <= start:
        raise ScheduleError("bad_window", "/end_at", "end_at is not after start_at", "choose a later end_at")
    if spec.at is not None:
        return Resolved(None, _resolve_at(spec, spec.at, zone, start, end, judged_ms), start, end)
    if end is not None and end <= judged_ms:
        raise ScheduleError("past_time", "/end_at", "end_at is in the past", "choose a later end_at, or none")
    anchor = now_ms - now_ms % 1000 if start is None else start
    after = now_ms if start is None else max(now_ms, start - 1)
    try:
        with steps(REQUEST_STEPS):
            key = _on_days(reduce_spec(spec, zone, anchor, seed), spec, calendars)
            schedule = compile_key(check_key(encode_key(key)))
            first_ms = judged_ms if start is None else max(judged_ms, start - 1)
            _check_fires(schedule, f"/{kind}", first_ms, end)
            check_cost(schedule, after)
            if spec.max_fires is not None:
                key = counted(key, spec.max_fires, after)
    except TooCostly as error:
        raise too_costly(error, f"/{kind}") from None
    return Resolved(encode_key(key), None, start, end, jitter_of(spec))


def check_cost(schedule: Schedule, after_ms: int) -> None:
    """Raise `TooCostly` if one of the next fires takes too many steps to be found."""
    at: int | None = after_ms
    if schedule.walks:
        for _ in range(_CHECKED_FIRES):
            with steps(SAVE_STEPS):
                at = None if at is None else schedule.next_after(at)


def too_costly(error: TooCostly, pointer: str) -> ScheduleError:
    """The problem of a schedule whose fires take too many steps to find."""
    message = f"the next fires take {error} to find"
    hint = "fire less often, name times by cron, use UNTIL instead of COUNT, or fewer exclusions and members"
    return ScheduleError("schedule_too_costly", pointer, message, hint)


def resolve_all(
    specs: ScheduleSpecs,
    *,
    now_ms: int,
    seed: str | None = None,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
    since_ms: int | None = None,
) -> Resolved:
    """Check one schedule or a list whose fires are taken together; the pointer of an error names the member."""
    if isinstance(specs, ScheduleSpec):
        return resolve(specs, now_ms=now_ms, seed=seed, calendars=calendars, since_ms=since_ms)
    if not specs:
        raise ScheduleError("bad_schedule", "", "the list of schedules is empty", "write at least one schedule")
    check_members(specs)
    with steps(REQUEST_STEPS):
        return _resolve_list(specs, now_ms=now_ms, seed=seed, calendars=calendars, since_ms=since_ms)


def _resolve_list(
    specs: Sequence[ScheduleSpec],
    *,
    now_ms: int,
    seed: str | None,
    calendars: Mapping[str, Calendar],
    since_ms: int | None,
) -> Resolved:
    members = []
    for number, spec in enumerate(specs):
        try:
            members.append(resolve(spec, now_ms=now_ms, seed=seed, calendars=calendars, since_ms=since_ms))
        except ScheduleError as error:
            raise ScheduleError(error.code, f"/{number}{error.pointer}", error.message, error.hint) from None
    if len(set(members)) == 1:
        return members[0]
    jitters = {member.jitter_ms for member in members if member.key is not None}
    if len(jitters) > 1:
        hint = "give all members the same jitter, or make two jobs"
        raise ScheduleError("bad_schedule", "", "schedules taken together have one jitter", hint)
    jitter = jitters.pop() if jitters else 0
    windows = {(member.start_ms, member.end_ms) for member in members}
    # A window that all members share is the schedule's own; otherwise each member carries its own.
    start, end = windows.pop() if len(windows) == 1 and all(member.key for member in members) else (None, None)
    key = check_key(union_key(_member_key(member, shared=(start, end)) for member in members))
    try:
        check_cost(compile_key(key), now_ms if start is None else max(now_ms, start - 1))
    except TooCostly as error:
        raise too_costly(error, "") from None
    return Resolved(key, None, start, end, jitter)


def bounded_key(when: Resolved) -> str:
    """The key of a recurring schedule together with its start and end."""
    assert when.key is not None
    key = msgspec.json.decode(when.key, type=ScheduleKey)
    return encode_key(msgspec.structs.replace(key, start_ms=when.start_ms, end_ms=when.end_ms))


def describe_spec(specs: ScheduleSpecs, *, seed: str | None = None) -> str:
    """A schedule as words, with its window: "every 10 minutes from 2027-01-01"."""
    if not isinstance(specs, ScheduleSpec):
        return described_together(specs, lambda spec: describe_spec(spec, seed=seed))
    _, spec, zone = normalize_spec(specs)
    text = _describe_kind(spec, zone, seed)
    if spec.exclude:
        text += f", except {covered(zone, exclusions(spec, zone)).describe()}"
    if spec.calendar is not None:
        text += f", by the calendar {spec.calendar}"
        text += f", moved to the {spec.roll} open day" if spec.roll else ""
    if spec.jitter is not None:
        text += f", spread over {spell_duration(jitter_of(spec) / 1000)}"
    if spec.max_fires is not None:
        text += f", {spec.max_fires:,} time{'' if spec.max_fires == 1 else 's'}"
    text += f" from {spec.start_at}" if spec.start_at else ""
    return text + (f" until {spec.end_at}" if spec.end_at else "")


def notes(key: str, after_ms: int, horizon_days: int = 400) -> list[str]:
    """What clock changes do to the coming fires, a few sentences at most."""
    return clock_changes(compile_key(key), after_ms, horizon_days)


def _member_key(member: Resolved, *, shared: tuple[int | None, int | None]) -> ScheduleKey:
    if member.key is None:
        return ScheduleKey(at_ms=member.at_ms)
    key = msgspec.json.decode(member.key, type=ScheduleKey)
    if (member.start_ms, member.end_ms) == shared:
        return key
    return msgspec.structs.replace(key, start_ms=member.start_ms, end_ms=member.end_ms)


def _on_days(key: ScheduleKey, spec: ScheduleSpec, calendars: Mapping[str, Calendar]) -> ScheduleKey:
    if spec.calendar is None:
        return key
    if spec.calendar not in calendars:
        hint = f"make it first: mainspring calendars set {spec.calendar} --date 2026-12-25"
        raise ScheduleError("unknown_calendar", "/calendar", f"there is no calendar {spec.calendar!r}", hint)
    days = days_of_calendar(calendars[spec.calendar])
    return msgspec.structs.replace(key, calendar=days, roll=spec.roll)


def _describe_kind(spec: ScheduleSpec, zone: Zone, seed: str | None) -> str:
    where = "" if zone.name == "UTC" else f" ({zone.name})"
    if spec.at is not None:
        read_instant(spec.at, zone, "/at", date_only=True)
        return f"once at {spec.at}{where}"
    if spec.cron is not None:
        if seed is None and _HASH.search(spec.cron):
            return f"cron {spec.cron.strip()}, H by the job's name{where}"
        return read_cron(spec.cron, spec.day_and, seed).describe() + where
    if spec.rrule is not None:
        start = None if spec.start_at is None else read_instant(spec.start_at, zone, "/start_at", date_only=True)
        key = rule_key(spec, zone, start or 0)
        if spec.dtstart is None and start is None:
            return f"{parse_rule(key.rrule or '')[0].describe(None)} from its creation on{where}"
        return compile_key(encode_key(key)).describe()
    if months := months_of(spec):
        return ("every month" if months == 1 else f"every {months} months") + where
    days = days_of(spec, zone)
    return f"every {spell_duration(days * DAY_S if days else interval_ms(spec) / 1000)}" + (where if days else "")


def _resolve_at(spec: ScheduleSpec, text: str, zone: Zone, start: int | None, end: int | None, now_ms: int) -> int:
    take_last = spec.overlap_hour == "second"
    at = read_instant(text, zone, "/at", date_only=True, take_last=take_last, in_gap=spec.gap)
    if at <= now_ms and not spec.run_if_late:
        hint = "choose a later time, or set run_if_late to run it at once"
        raise ScheduleError("past_time", "/at", f"{text} is in the past", hint)
    if (start is not None and at < start) or (end is not None and at > end):
        hint = "move it inside, or leave start_at and end_at out"
        raise ScheduleError("bad_window", "/at", f"{text} is outside start_at and end_at", hint)
    return at


def _check_fires(schedule: Schedule, pointer: str, after: int, end: int | None) -> None:
    fire = schedule.next_after(after)
    if fire is None:
        kind = schedule.base if isinstance(schedule, Metered) else schedule
        hint = "check day and month: 31 February never comes, 29 February only in leap years"
        if pointer == "/rrule":
            hint = "check COUNT, UNTIL and exdates, and whether all parts can hold at the same time"
        if isinstance(kind, Without):
            hint = "check exclude: it may leave nothing over"
        if isinstance(kind, OpenDays | Rolled):
            hint = "check the calendar: it may leave no open day for it"
        message = f"never fires: no match within 50 years ({schedule.describe()})"
        raise ScheduleError("never_fires", pointer, message, hint)
    if end is not None and fire > end:
        first = (EPOCH + timedelta(milliseconds=fire)).isoformat()
        message = "never fires before end_at"
        raise ScheduleError("never_fires", "/end_at", message, f"the first fire would be at {first}")
