"""Calendars and blackouts: the days and windows in which schedules do not fire."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.wire.message import Instant, Request, Response


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Days by date, or by rule: the three day fields of a cron expression, such as `25 12 *` or `* * SAT,SUN`.

    Schedules do not fire on them (`exclude`), or on no others (`include`).
    """

    dates: Annotated[list[date], msgspec.Meta(max_length=3650)] = []
    rules: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    mode: Literal["exclude", "include"] = "exclude"


class Calendar(Response):
    """A calendar as it is now; `jobs` says how many jobs follow it."""

    name: str
    version: int
    days: CalendarDays
    jobs: int
    created_at: datetime
    created_by: str


class CalendarVersion(Response):
    """One version of a calendar; it never changes."""

    version: int
    days: CalendarDays
    created_at: datetime
    created_by: str


class CalendarChange(Response):
    """What an edit of a calendar would do: how many jobs get other fires, and the first few of them."""

    jobs: int
    changed: list[JobFires]


class JobFires(Response):
    """The next fires of a job, before and after."""

    job: str
    fires_before: list[datetime]
    fires_after: list[datetime]


class ClosedDays(Response):
    """Which of the days from `first` to `last` are closed."""

    first: date
    last: date
    closed: list[date]


class NewBlackout(Request):
    """A window in which no fire starts: from `start_at` to `end_at`, or `lasts` from each fire of `schedule` on.

    It holds for the whole tenant, for a `queue`, or for a `job` by name or id.
    """

    start_at: Instant | None = None
    end_at: Instant | None = None
    schedule: ScheduleSpecs | None = None
    lasts: str | int | float | None = None
    queue: str | None = None
    job: str | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Blackout(Response):
    """A blackout. `holds_until` is the end of the window that holds now, `next_at` the beginning of the next one."""

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
