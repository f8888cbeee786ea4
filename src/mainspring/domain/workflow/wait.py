"""Wait steps: a duration or an instant, either of which may be a template over the run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.schedule.spec import ScheduleError, read_instant
from mainspring.domain.schedule.zone import ZoneError, load_zone
from mainspring.domain.template import fill
from mainspring.domain.workflow.inputs import RunValues
from mainspring.domain.workflow.spec import Wait

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = "such as 2027-03-01T09:00:00Z"


class WaitError(ValueError):
    """The resolved value of a wait is neither a duration nor an instant."""


def wait_problems(pointer: str, wait: Wait) -> Iterator[Problem]:
    """Return the problems of a wait that can be found before a run exists."""
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
    except WaitError as error:
        yield Problem(f"{pointer}/{field}", str(error), hint)


def end_of(wait: Wait, values: Mapping[str, Any]) -> tuple[float | None, datetime | None]:
    """Resolve a wait to seconds from now, or to an instant. A KeyError names a value that the run lacks."""
    known = RunValues(values)
    if wait.until is None:
        given = fill(wait.for_, known)
        if not isinstance(given, str | int | float):
            raise WaitError(f"{given!r} is not a duration")
        try:
            seconds = parse_duration(given)
        except ValueError as error:
            raise WaitError(str(error)) from None
        if seconds > MAX_S:
            raise WaitError(f"{given!r} is too long: at most 1,000 years")
        return max(0.0, seconds), None
    given = fill(wait.until, known)
    try:
        return None, _EPOCH + timedelta(milliseconds=read_instant(str(given), load_zone(wait.timezone), ""))
    except (ScheduleError, OverflowError) as error:
        raise WaitError(str(error)) from None
