"""Calendars and blackouts: the days and windows in which schedules do not fire."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Duration, Name
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.wire.message import Instant, Request, Response


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Days by date, or by rule: the three day fields of a cron expression, such as `25 12 *` or `* * SAT,SUN`.

    Schedules do not fire on these days (`exclude`), or only on these days (`include`).
    """

    dates: Annotated[list[date], msgspec.Meta(max_length=3650)] = []
    rules: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    mode: Literal["exclude", "include"] = "exclude"


class Calendar(Response):
    """The current version of a calendar; `jobs` is the number of jobs that follow it."""

    name: str
    version: int
    days: CalendarDays
    jobs: int
    created_at: datetime
    created_by: str


class CalendarVersion(Response):
    """One version of a calendar; versions are immutable."""

    version: int
    days: CalendarDays
    created_at: datetime
    created_by: str


class CalendarChange(Response):
    """The effect of a calendar edit: how many jobs fire at other times, and the first few of them."""

    jobs: int
    changed: list[JobFires]


class JobFires(Response):
    """The next fires of a job, before and after a change."""

    job: str
    fires_before: list[datetime]
    fires_after: list[datetime]


class ClosedDays(Response):
    """The days from `first` to `last` on which schedules do not fire."""

    first: date
    last: date
    closed: list[date]


class NewBlackout(Request):
    """A window in which no fire starts: from `start_at` to `end_at`, or for `lasts` after each fire of `schedule`.

    It applies to the whole tenant, to a `queue`, or to a `job` by name or id.
    """

    start_at: Instant | None = None
    end_at: Instant | None = None
    schedule: ScheduleSpecs | None = None
    lasts: Duration | None = None
    queue: Name | None = None
    job: Name | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Blackout(Response):
    """A blackout. `holds_until` is the end of the current window, `next_at` the start of the next one."""

    blackout_id: UUID
    queue: str | None
    job: str | None
    start_at: datetime | None
    end_at: datetime | None
    schedule: ScheduleSpecs | None
    lasts_s: float | None
    description: str
    reason: str
    holds_until: datetime | None
    next_at: datetime | None
    created_at: datetime
    created_by: str
