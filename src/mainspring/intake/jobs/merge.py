"""Merge a patch into a job's definition."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec

SCHEDULE_KINDS = {"cron", "every", "at", "rrule"}
RECURRING_ONLY = {"exclude", "calendar", "roll", "jitter", "max_fires"}


def merged(old: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """Merge as in RFC 7396: null removes, objects merge, anything else replaces."""
    known, schedule = msgspec.to_builtins(old), changes.get("schedule")
    if isinstance(schedule, dict) and isinstance(known["schedule"], dict) and SCHEDULE_KINDS & schedule.keys():
        # A new kind of schedule replaces the old kind.
        gone = SCHEDULE_KINDS if "rrule" in schedule else SCHEDULE_KINDS | {"dtstart", "exdates"}
        gone = gone | RECURRING_ONLY if "at" in schedule else gone
        known["schedule"] = {k: v for k, v in known["schedule"].items() if k not in gone}
    wanted = _merge(known, changes)
    try:
        return msgspec.convert(wanted, JobSpec)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), JobSpec, wanted)
        raise Invalid(f"the change does not match the schema of a job: {problem}", problems=(problem,)) from None


def _merge(old: Any, changes: Any) -> Any:
    if not isinstance(changes, dict):
        return changes
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
