"""Options of the decorators as fields of the API, checked as far as that needs no import of the domain."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

_DURATION = ((str, int, float, timedelta), "a duration: seconds, '10m', ISO 8601 or a timedelta")
_FLAG = ((bool,), "True or False")
_TEXT = ((str,), "a text")
_NUMBER = ((int,), "a whole number")
_MAPPING = ((Mapping,), "a mapping, as in the API")
_LIST = ((Sequence,), "a list of mappings, as in the API")

OPTIONS: dict[str, tuple[tuple[type, ...], str]] = {
    "schedule": ((str, Mapping, Sequence), "a cron expression, ms.every('1h') or a schedule as in the API"),
    "tz": ((str,), "a time zone such as 'Europe/Berlin'"),
    "description": _TEXT,
    "metadata": _MAPPING,
    "queue": _TEXT,
    "priority": ((int,), "a whole number from 0 to 10"),
    "timeout": _DURATION,
    "retries": ((int, Mapping), "a number, or a mapping such as {'max': 3, 'base': '10s'}"),
    "overlap": ((str,), "skip, queue_one, queue_all, cancel_running or allow"),
    "misfire": ((str, Mapping), "latest, all or skip, or a mapping such as {'policy': 'latest', 'window': '6h'}"),
    "delivery": ((str,), "at_least_once, at_most_once or effectively_once"),
    "paused": _FLAG,
    "pause_after_failures": _NUMBER,
    "start_by": _DURATION,
    "finish_by": _DURATION,
    "max_gap": _DURATION,
    "estimated_duration": _DURATION,
    "labels": ((Mapping,), "a mapping such as {'zone': 'eu'}"),
    "resources": ((Mapping,), "a mapping such as {'cpu': 2, 'memory': '4Gi'}"),
    "exclusive": _FLAG,
    "concurrency": ((int, Mapping), "a number, or a mapping such as {'key': 'report', 'limit': 1}"),
    "rate": ((Mapping,), "a mapping such as {'limit': 10, 'per': '1m'}"),
    "ordered": _FLAG,
    "sandbox": _MAPPING,
    "notify": _LIST,
    "preemptible": _FLAG,
    "artifacts_in": _LIST,
    "allow_plaintext": _LIST,
    "flexible": ((Mapping,), "a mapping such as {'before': '06:00', 'takes': '20m'}"),
    "spot": ((str,), "never, tolerate or prefer"),
}
"""The options of `@ms.job` besides `name`, and what each takes. A test compares them with the fields of a job."""


def fields_of(job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job as fields of the API. Raises `TypeError` for an unknown or wrongly typed one."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        _check(job, name, value)
    fields = {name: seconds_of(value) for name, value in given.items() if name not in ("schedule", "tz")}
    if "schedule" in given:
        fields["schedule"] = schedule_of(given["schedule"], given.get("tz"))
    elif "tz" in given:
        raise ValueError(f"{job}: tz= needs schedule=")
    for name, field in (("retries", "max"), ("misfire", "policy"), ("concurrency", "limit")):
        if isinstance(fields.get(name), str | int):
            fields[name] = {field: fields[name]}
    return fields


def schedule_of(schedule: Any, tz: str | None) -> Any:
    """Return a schedule as the API has it: one, or a list."""
    if isinstance(schedule, str):
        found: dict[str, Any] = {"cron": schedule}
    elif hasattr(schedule, "interval"):
        found = {"every": seconds_of(schedule.interval)}
    elif isinstance(schedule, Mapping):
        found = dict(schedule)
    else:
        return [schedule_of(one, tz) for one in schedule]
    return found | ({"timezone": tz} if tz else {})


def seconds_of(value: Any) -> Any:
    """Return a timedelta as seconds, and anything else unchanged."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def _check(job: str, name: str, value: Any) -> None:
    if name not in OPTIONS:
        close = difflib.get_close_matches(name, [*OPTIONS, "name"], n=1)
        hint = f"did you mean {close[0]}=?" if close else f"the options are name, {', '.join(OPTIONS)}"
        raise TypeError(f"{job}: unknown option {name}=; {hint}")
    types, wanted = OPTIONS[name]
    is_every = name == "schedule" and hasattr(value, "interval")
    fits = is_every or (isinstance(value, types) and (bool in types or not isinstance(value, bool)))
    if not fits or (isinstance(value, str) and str not in types):
        raise TypeError(f"{job}: {name}={value!r} must be {wanted}")
