"""What queues wait with a number of workers: the coming fires, simulated with measured durations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.capacity import MINUTE_MS, Arrivals, Simulated, durations, scaled, simulate
from mainspring.domain.schedule.budget import BATCH_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.statistics import percentile
from mainspring.store.rollups import QueueTotals
from mainspring.views import fire_calendar
from mainspring.views.fire_density import HOUR_MS, ScheduleLoad, ScheduleLoads

MAX_WORKERS = 10_000
MAX_SLOTS = 100_000
MOST_STEPS = 200_000
"""Steps of a simulation: about half a second."""
MAX_FIRES_IN_HOUR = 200_000
"""Distinct fires of all schedules in an hour; of more, those of schedules that fire often are taken together."""
STEP_MS = 5_000
SHOWN_MINUTES = 10
LEAST_WAIT_MS = 1_000
"""Minutes with shorter waits are not crowded."""


def simulated(
    loads: ScheduleLoads,
    means: Mapping[int, float],
    past: Mapping[str, QueueTotals],
    begin_ms: int,
    hours: int,
    slots: int,
) -> Simulated:
    """Simulate the coming hours. `means`: of each load, by its place. CPU-bound: run it in a thread."""
    shapes = {name: durations(totals.counts) for name, totals in past.items()}
    with steps(BATCH_STEPS):
        arrivals = _arrivals(loads, means, shapes, begin_ms, hours)
        return simulate(arrivals, slots=slots, end_ms=begin_ms + hours * HOUR_MS, most=MOST_STEPS)


def _arrivals(
    loads: ScheduleLoads, means: Mapping[int, float], shapes: Mapping[str, Sequence[float]], begin_ms: int, hours: int
) -> Iterator[Arrivals]:
    """The fires in order, an hour at a time, so that a simulation that ends early computes no more of them."""
    counted = list(fire_calendar.counted(loads.loads))
    distributions = [scaled(shapes.get(load.queue, ()), means.get(id(load), 0.0)) for load, _ in counted]
    for hour in range(hours):
        found, at = [], begin_ms + hour * HOUR_MS
        exact = sum(_count(load, at) for load, _ in counted) <= MAX_FIRES_IN_HOUR
        for (load, weight), shape in zip(counted, distributions, strict=True):
            with suppress(TooCostly), steps(REQUEST_STEPS):
                for at_ms, fires in _fires(load, at, exact=exact):
                    found.append(Arrivals(at_ms, round(weight * load.jobs * fires), load.queue, shape))
        yield from sorted(found, key=lambda arrivals: arrivals.at_ms)


def _count(load: ScheduleLoad, begin_ms: int) -> int:
    """The fires of a schedule in an hour; 0 if that is too costly to say."""
    with suppress(TooCostly), steps(REQUEST_STEPS):
        return load.schedule.count_between(begin_ms - 1, begin_ms + HOUR_MS - 1)
    return 0


def _fires(load: ScheduleLoad, begin_ms: int, *, exact: bool) -> list[tuple[int, int]]:
    """Fires in an hour, with how many each stands for."""
    count = _count(load, begin_ms)
    if exact or count <= HOUR_MS // STEP_MS:
        fires = load.schedule.between(begin_ms - 1, begin_ms + HOUR_MS - 1, count) if count else []
        return [(at_ms, 1) for at_ms in fires]
    starts = range(begin_ms, begin_ms + HOUR_MS, STEP_MS)
    return [(at_ms, load.schedule.count_between(at_ms - 1, at_ms + STEP_MS - 1)) for at_ms in starts]


def as_capacity(found: Simulated, begin_ms: int, *, workers: int, slots: int) -> wire.CapacityForecast:
    worst = sorted(found.minutes.items(), key=lambda item: (-item[1][1], item[0]))[:SHOWN_MINUTES]
    available_ms = workers * slots * (found.until_ms - begin_ms)
    return wire.CapacityForecast(
        workers=workers,
        slots=slots,
        until_at=instant(found.until_ms),
        executions=found.executions,
        busy=found.busy_ms / available_ms if available_ms else 0.0,
        queues=[
            wire.QueueWait(
                name=name,
                executions=waits.executions,
                p50_ms=min(percentile(waits.counts, 0.5) or 0.0, waits.max_ms),
                p95_ms=min(percentile(waits.counts, 0.95) or 0.0, waits.max_ms),
                max_ms=waits.max_ms,
                longest_at=None if waits.max_at_ms is None else instant(waits.max_at_ms),
            )
            for name, waits in sorted(found.queues.items())
        ],
        minutes=[
            wire.CrowdedWait(at=instant(minute * MINUTE_MS), due=due, max_ms=wait_ms)
            for minute, (due, wait_ms) in sorted(worst)
            if wait_ms >= LEAST_WAIT_MS
        ],
    )
