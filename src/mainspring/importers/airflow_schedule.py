"""Schedules of DAGs. Airflow creates a run at the end of each interval, so at every fire of the cron expression."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.importers.crontab import MACROS
from mainspring.importers.plan import Plan, ReadOptions, Unsupported
from mainspring.importers.python_source import Call, Unknown
from mainspring.importers.rules.days import ALL_MONTH_DAYS, ALL_WEEKDAYS, DayRule
from mainspring.importers.rules.elapsed import ElapsedRule, SourceRule, WindowRule
from mainspring.importers.rules.field_sets import MONTHS, SUNDAY_0, FieldError, FieldKind, read_field
from mainspring.importers.rules.wall_clock import WallRule
from mainspring.importers.schedule_writer import check_zone, instant_text, wall_ms, write_schedule

KINDS = (
    FieldKind("minute", 0, 59),
    FieldKind("hour", 0, 23, wraps=True),
    FieldKind("day of month", 1, 31),
    FieldKind("month", 1, 12, MONTHS, wraps=True),
    FieldKind("day of week", 0, 7, SUNDAY_0, wraps=True),
)
_ALL_HOURS = frozenset(range(24))
_KEYS = ("schedule", "schedule_interval", "timetable")

Read = tuple[ScheduleSpec | None, SourceRule | None, str]


def read_schedule(
    plan: Plan, file: str, dag_id: str, line: int, settings: dict[str, Any], options: ReadOptions
) -> Read:
    """The schedule of a DAG, the rule of Airflow for it, and its text. Raises Unsupported."""
    key = next((key for key in _KEYS if key in settings), None)
    if key is None:
        hint = "write schedule=None or a cron expression into the DAG"
        raise Unsupported("the DAG has no schedule: its default depends on the version of Airflow", hint, line)
    given = settings[key]
    start_ms, zone = _start(plan, file, dag_id, line, settings, options)
    if isinstance(given, Call) and given.name in ("CronTriggerTimetable", "CronDataIntervalTimetable"):
        zone_given = given.kwargs.get("timezone")
        zone = check_zone(zone_given) if isinstance(zone_given, str) else zone
        given = given.args[0] if given.args else given.kwargs.get("cron")
    if isinstance(given, Call) and given.name == "DeltaDataIntervalTimetable" and given.args:
        given = given.args[0]
    if settings.get("end_date") is not None:
        message = "end_date of the DAG is not carried over"
        plan.find("dropped", file, line, dag_id, message, "set end_at of the schedule, or pause the workflow")
    if given is None or given in ("None", "@once"):
        if given == "@once":
            plan.find("note", file, line, dag_id, "@once: run it once by hand", "mainspring workflows run NAME")
        return None, None, ""
    if isinstance(given, timedelta):
        return _elapsed(given, start_ms, line)
    if isinstance(given, str):
        return _cron(given, zone, start_ms, line, options)
    kind = given.name if isinstance(given, Call) else "it" if not isinstance(given, Unknown) else given.text
    hint = "use a cron expression or a timedelta; for datasets, make the job depend on the producing job"
    raise Unsupported(f"the schedule cannot be read: {kind} is no fixed time", hint, line)


def read_rule(text: str, zone: str) -> WallRule:
    """When Airflow fires for a cron expression.

    An expression that covers every hour follows elapsed time. Others fire in the second pass of a repeated hour, and a
    skipped time by the length of the gap later.
    """
    words = MACROS.get(text, text).split()
    if len(words) != 5:
        raise FieldError(f"{text[:60]!r} does not have five fields")
    minute, hour, day, month, weekday = (read_field(word, kind) for word, kind in zip(words, KINDS, strict=True))
    weekdays = frozenset(number % 7 for number in weekday.numbers)
    restricts_both = day.numbers != ALL_MONTH_DAYS and weekdays != ALL_WEEKDAYS
    days = DayRule(day.numbers, weekdays, month.numbers, either=restricts_both)
    if hour.numbers == _ALL_HOURS:
        return WallRule(minute.numbers, hour.numbers, days, zone=zone, gap="skip", passes="both")
    return WallRule(minute.numbers, hour.numbers, days, zone=zone, gap="shift", passes="second")


def _cron(text: str, zone: str, start_ms: int | None, line: int, options: ReadOptions) -> Read:
    try:
        rule = read_rule(text, zone)
    except FieldError as error:
        raise Unsupported(str(error), "use five fields, or a preset such as @daily", line) from None
    spec = write_schedule(rule)
    if start_ms is None or start_ms <= options.now_ms:
        return spec, rule, text
    # The first interval begins at the first fire from the start date on, and its run at the next one.
    first = next(rule.fires(start_ms - 1), start_ms) + 1000
    spec = msgspec.structs.replace(spec, start_at=instant_text(first))
    return spec, WindowRule(rule, start_ms=first), text


def _elapsed(every: timedelta, start_ms: int | None, line: int) -> Read:
    every_ms = round(every.total_seconds() * 1000)
    if not 1000 <= every_ms <= 50 * 366 * 86_400_000 or every_ms % 1000:
        raise Unsupported(f"every {every} cannot be expressed", "use whole seconds, at least one", line)
    spec = ScheduleSpec(every=every_ms // 1000)
    if start_ms is None:
        return spec, ElapsedRule(every_ms), f"every {every}"
    first = start_ms + every_ms
    spec = msgspec.structs.replace(spec, start_at=instant_text(first))
    return spec, ElapsedRule(every_ms, first), f"every {every}"


def _start(
    plan: Plan, file: str, dag_id: str, line: int, settings: dict[str, Any], options: ReadOptions
) -> tuple[int | None, str]:
    defaults = settings.get("default_args")
    given = settings.get("start_date")
    if given is None and isinstance(defaults, dict):
        given = defaults.get("start_date")
    if given is None:
        return None, check_zone(options.timezone)
    if isinstance(given, Call) and given.name == "datetime" and all(isinstance(n, int) for n in given.args):
        zone = given.kwargs.get("tz", given.kwargs.get("tzinfo"))
        if isinstance(zone, Call) and zone.args and isinstance(zone.args[0], str):  # pendulum.timezone("…")
            zone = zone.args[0]
        if isinstance(zone, Unknown):
            zone = "UTC" if zone.text.lower().removeprefix("….") == "utc" else None
        zone = check_zone(zone) if isinstance(zone, str) else check_zone(options.timezone)
        numbers = [*given.args, *(0 for _ in range(6 - len(given.args)))][:6]
        if len(given.args) >= 3:
            text = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}".format(*numbers)
            try:
                return wall_ms(text, zone), zone
            except ValueError:
                raise Unsupported(f"start_date {text} does not exist", "correct the date", line) from None
    message = "start_date is computed by the program: the schedule starts at once"
    plan.find("note", file, line, dag_id, message, "set start_at of the schedule if it must start later")
    return None, check_zone(options.timezone)
