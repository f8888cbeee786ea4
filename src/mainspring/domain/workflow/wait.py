"""A step that waits for a time: for so long, or until an instant. Either may be a template over the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.schedule.spec import ScheduleError, read_instant
from mainspring.domain.schedule.zone import ZoneError, load_zone
from mainspring.domain.template import fill
from mainspring.domain.workflow.inputs import RunValues
from mainspring.domain.workflow.spec import Wait

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = "such as 2027-03-01T09:00:00Z"


class NoTime(ValueError):
    """What a wait was given by its run is neither a duration nor an instant."""


def wait_problems(pointer: str, wait: Wait) -> Iterator[Problem]:
    """What is wrong with a wait, as far as it can be seen before there is a run."""
    if (wait.until is None) == (wait.for_ is None):
        yield Problem(pointer, "a wait has exactly one of for and until", 'such as {"for": "2h"}')
        return
    try:
        load_zone(wait.timezone)
    except ZoneError as error:
        yield Problem(f"{pointer}/timezone", str(error), "such as Europe/Berlin")
        return
    field, hint = ("for", "seconds, 90s, 10m, 1h30m or PT3H") if wait.until is None else ("until", _INSTANT)
    given = wait.for_ if wait.until is None else wait.until
    if isinstance(given, str) and "{{" in given:
        return
    try:
        end_of(wait, {})
    except NoTime as error:
        yield Problem(f"{pointer}/{field}", str(error), hint)


def end_of(wait: Wait, values: Mapping[str, Any]) -> tuple[float | None, datetime | None]:
    """Either how many seconds from now, or until when; a KeyError names what the run does not have."""
    known = RunValues(values)
    if wait.until is None:
        given = fill(wait.for_, known)
        if not isinstance(given, str | int | float):
            raise NoTime(f"{given!r} is not a duration")
        try:
            return max(0.0, parse_duration(given)), None
        except ValueError as error:
            raise NoTime(str(error)) from None
    given = fill(wait.until, known)
    try:
        return None, _EPOCH + timedelta(milliseconds=read_instant(str(given), load_zone(wait.timezone), ""))
    except (ScheduleError, OverflowError) as error:
        raise NoTime(str(error)) from None
