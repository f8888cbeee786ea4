"""The forecast: fires, busy slots, crowded minutes, and how to spread them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.wire.message import Response


class ForecastHour(Response):
    """What is expected in an hour. `slots`: how many are busy on average."""

    at: datetime
    fires: int
    slots: float


class QueueForecast(Response):
    """What is expected in a queue. Durations are those of the last week, null if nothing ended in it.

    `slots` are busy on average in its busiest hour, which begins at `busiest_at`; `slots_p95` would be, if every
    execution took as long as `p95_ms`.
    """

    name: str
    fires: int
    busiest_at: datetime | None
    slots: float | None
    slots_p95: float | None
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None


class CrowdingSchedule(Response):
    """A schedule, its fires in a crowded minute, and some of its jobs."""

    schedule: str
    due: int
    jobs: list[str]


class CrowdedMinute(Response):
    """A minute with many fires, and the schedules that have the most of them."""

    at: datetime
    due: int
    schedules: list[CrowdingSchedule]


class Spread(Response):
    """How to spread a schedule of a crowded minute: `jitter` for its jobs, or another minute, `shift_min` later.

    `jobs` counts its jobs, `examples` names some that have no jitter yet. There are `due` fires in the
    minute, and `then` in the most crowded minute of the hour afterwards.
    """

    at: datetime
    due: int
    schedule: str
    jobs: int
    examples: list[str]
    jitter: str | None
    shift_min: int | None
    then: int
    patch: dict[str, Any] | None = None
    """For a jitter: the change of each of the jobs, as a merge patch of its definition or manifest."""


class QueueWait(Response):
    """How long executions of a queue wait for a slot in a simulation; the longest of those due at `longest_at`."""

    name: str
    executions: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    longest_at: datetime | None


class CrowdedWait(Response):
    """A minute whose executions wait: how many are due, and the longest wait."""

    at: datetime
    due: int
    max_ms: float


class CapacityForecast(Response):
    """A simulation of so many workers, each with so many slots, all serving every queue, up to `until_at`.

    `busy`: the share of the slots' time that is used. `minutes`: those with the longest waits. Executions take slots in
    the order of their due times; priorities, limits, resources, jitter and windows are left out.
    """

    workers: int
    slots: int
    until_at: datetime
    executions: int
    busy: float
    queues: list[QueueWait]
    minutes: list[CrowdedWait]


class Forecast(Response):
    """The load expected from schedules in [begin_at, end_at). Not `exact`: fires are estimated from a sample."""

    begin_at: datetime
    end_at: datetime
    fires: int
    exact: bool
    notes: list[str]
    """What the figures leave out."""
    hours: list[ForecastHour]
    queues: list[QueueForecast]
    crowded: list[CrowdedMinute]
    spread: list[Spread]
    capacity: CapacityForecast | None = None
    """If workers are given."""
