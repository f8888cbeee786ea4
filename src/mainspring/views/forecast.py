"""The load expected in the coming days: fires of the schedules, and the slots that past durations keep busy.

Each distinct schedule is counted once for all its jobs in a queue. With more than COUNTED_SCHEDULES of them, a sample
is counted and extrapolated, so the work does not grow with the number of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from mainspring import wire
from mainspring.calculation import calculated
from mainspring.clock import instant
from mainspring.domain.errors import invalid
from mainspring.domain.forecast import MAX_HOURS, busy_slots
from mainspring.domain.schedule.budget import BATCH_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.statistics import percentile
from mainspring.store import rollups
from mainspring.store.db import Database, database_now_ms
from mainspring.store.rollups import QueueTotals
from mainspring.views import capacity as simulations
from mainspring.views import fire_calendar
from mainspring.views.fire_calendar import COUNTED_SCHEDULES, CrowdedMinute
from mainspring.views.fire_density import DAY_HOURS, HOUR_MS, ScheduleLoad, ScheduleLoads, tenant_loads

MAX_DAYS = 14
MEASURED = timedelta(days=7)
"""Durations are those of executions that ended in this time."""
MAX_DURATIONS = 5000
"""Combinations of schedule and queue whose durations are read; the others have the mean of their queue."""
MAX_QUEUES = 1_000
"""Queues whose durations are read."""
SLOTS = 8
"""Of a worker, by default."""
CROWDED_MINUTES = 8
EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class Durations:
    """Mean durations in milliseconds of each schedule in each queue, and of each queue."""

    by_schedule: Mapping[tuple[int, str], float] = field(default_factory=dict)
    by_queue: Mapping[str, float] = field(default_factory=dict)

    def of(self, load: ScheduleLoad) -> float:
        """The duration of its executions; 0 if nothing is known."""
        known = self.by_schedule.get((load.schedule_id, load.queue))
        return self.by_queue.get(load.queue, 0.0) if known is None else known


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Fires and busy slots of a queue, by hour."""

    fires: list[float]
    slots: list[float]


@dataclass(frozen=True, slots=True)
class Plan:
    """The hours of each queue from `begin_ms`; jobs whose schedules are too costly to count are `left_out`."""

    begin_ms: int
    hours: int
    queues: dict[str, QueuePlan]
    left_out: int

    def fires(self) -> list[int]:
        return [round(sum(plan.fires[n] for plan in self.queues.values())) for n in range(self.hours)]

    def slots(self) -> list[float]:
        return [sum(plan.slots[n] for plan in self.queues.values()) for n in range(self.hours)]


async def forecast(
    database: Database, *, tenant: int, days: int, workers: int | None = None, slots: int | None = None
) -> wire.Forecast:
    """The forecast of a tenant from the beginning of this hour; with `workers`, what queues wait with them."""
    _check(days, workers, slots)
    loads = await tenant_loads(database, tenant=tenant, by_queue=True)
    async with database.connection() as connection:
        now_ms = int(await database_now_ms(connection))
        since = instant(now_ms) - MEASURED
        means = await rollups.mean_durations(connection, tenant=tenant, since=since, most=MAX_DURATIONS)
        past = await rollups.queue_totals(connection, tenant=tenant, since=since, most=MAX_QUEUES)
    durations = Durations(means, {name: mean for name, queue in past.items() if (mean := _mean(queue)) is not None})
    # Hundreds of schedules over days take up to a second, too long for the event loop that claims and settles.
    begin_ms = now_ms - now_ms % HOUR_MS
    found = await calculated(plan, loads, durations, begin_ms, days * DAY_HOURS)
    minutes = await calculated(crowded_minutes, loads, found)
    capacity = None
    if workers is not None:
        means_by_load = {id(load): durations.of(load) for load in loads.loads}
        total = workers * (slots or SLOTS)
        hours = days * DAY_HOURS
        simulated = await calculated(simulations.simulated, loads, means_by_load, past, begin_ms, hours, total)
        capacity = simulations.as_capacity(simulated, begin_ms, workers=workers, slots=slots or SLOTS)
    named = [await fire_calendar.examples(database, minute, tenant=tenant) for minute in minutes]
    proposals = await fire_calendar.proposals(database, minutes, tenant=tenant, each=EXAMPLES)
    return wire.Forecast(
        begin_at=instant(begin_ms),
        end_at=instant(begin_ms + found.hours * HOUR_MS),
        fires=sum(found.fires()),
        exact=fire_calendar.is_counted(loads) and not found.left_out,
        notes=_notes(loads, found, durations) + _cut(capacity, begin_ms, found.hours),
        hours=[
            wire.ForecastHour(at=instant(begin_ms + n * HOUR_MS), fires=fires, slots=slots)
            for n, (fires, slots) in enumerate(zip(found.fires(), found.slots(), strict=True))
        ],
        queues=[_as_queue(name, queue, begin_ms, past.get(name)) for name, queue in sorted(found.queues.items())],
        crowded=[_as_crowded(minute, some) for minute, some in zip(minutes, named, strict=True)],
        spread=[_as_spread(proposal) for proposal in proposals],
        capacity=capacity,
    )


def _check(days: int, workers: int | None, slots: int | None) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise invalid("/days", f"days must be 1 to {MAX_DAYS}")
    if workers is not None and not 1 <= workers <= simulations.MAX_WORKERS:
        raise invalid("/workers", f"workers must be 1 to {simulations.MAX_WORKERS:,}")
    if slots is not None and workers is None:
        raise invalid("/slots", "slots are those of each worker", hint="give workers as well")
    if slots is not None and not 1 <= slots * (workers or 1) <= simulations.MAX_SLOTS:
        raise invalid("/slots", f"all workers together have 1 to {simulations.MAX_SLOTS:,} slots")


def plan(loads: ScheduleLoads, durations: Durations, begin_ms: int, hours: int) -> Plan:
    """Fires and busy slots of each queue, by hour. CPU-bound: run it in a thread.

    Fires before `begin_ms` are counted for as long as they keep slots busy.
    """
    longest_ms = max((durations.of(load) for load in loads.loads), default=0.0)
    lead = min(MAX_HOURS, math.ceil(longest_ms / HOUR_MS))
    counts: dict[tuple[str, float], list[float]] = {}
    left_out = 0
    with steps(BATCH_STEPS):
        for load, weight in fire_calendar.counted(loads.loads):
            key = load.queue, durations.of(load)
            try:
                with steps(REQUEST_STEPS):
                    fires = fire_calendar.due_by_hour(load, begin_ms - lead * HOUR_MS, lead + hours)
            except TooCostly:
                left_out += load.jobs
                continue
            known = counts.setdefault(key, [0.0] * (lead + hours))
            for n, count in enumerate(fires):
                known[n] += weight * count
    queues: dict[str, QueuePlan] = {}
    for (queue, mean_ms), due in counts.items():
        into = queues.setdefault(queue, QueuePlan([0.0] * hours, [0.0] * hours))
        for n, slots in enumerate(busy_slots(due, mean_ms / HOUR_MS)[lead:]):
            into.fires[n] += due[lead + n]
            into.slots[n] += slots
    return Plan(begin_ms, hours, queues, left_out)


def crowded_minutes(loads: ScheduleLoads, found: Plan) -> list[CrowdedMinute]:
    """The most crowded minutes of the busiest hours, one of each hour of the day. CPU-bound: run it in a thread."""
    together: dict[tuple[int, int], ScheduleLoad] = {}
    for load in loads.loads:  # a schedule in several queues is one schedule
        key = load.schedule_id, id(load.schedule)
        known = together.get(key)
        together[key] = replace(load, queue="") if known is None else replace(known, jobs=known.jobs + load.jobs)
    everyone = ScheduleLoads(list(together.values()), loads.complete)
    fires = found.fires()
    busiest: dict[int, int] = {}
    for n in sorted(range(found.hours), key=lambda n: (-fires[n], n)):
        if fires[n]:
            busiest.setdefault(n % DAY_HOURS, n)
    hours = [found.begin_ms + n * HOUR_MS for n in list(busiest.values())[:CROWDED_MINUTES]]
    minutes = [fire_calendar.most_crowded(everyone, hour_ms) for hour_ms in hours]
    return sorted(minutes, key=lambda minute: (-max(minute.minutes), minute.at_ms))


def _mean(queue: QueueTotals | None) -> float | None:
    ran = 0 if queue is None else queue.totals.succeeded + queue.totals.failed
    return queue.totals.duration_ms / ran if queue is not None and ran else None


def _notes(loads: ScheduleLoads, found: Plan, durations: Durations) -> list[str]:
    notes = []
    if not fire_calendar.is_counted(loads):
        notes.append(f"fires are estimated: {COUNTED_SCHEDULES} of the schedules are counted, or a sample of the jobs")
    if found.left_out:
        notes.append(f"{found.left_out} jobs are left out: their schedules take too long to compute")
    known = durations.by_queue
    if unknown := [name for name, queue in sorted(found.queues.items()) if name not in known and any(queue.fires)]:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        notes.append(f"no durations are known, so slots count as 0: {', '.join(unknown[:5])}{more}")
    return notes


def _cut(capacity: wire.CapacityForecast | None, begin_ms: int, hours: int) -> list[str]:
    """How much of the time was simulated, if not all."""
    if capacity is None or capacity.until_at == instant(begin_ms + hours * HOUR_MS):
        return []
    ran = f"{capacity.executions:,} executions until {capacity.until_at:%Y-%m-%d %H:%M} UTC are simulated"
    return [f"{ran}: ask for fewer days, or for more workers"]


def _as_queue(name: str, queue: QueuePlan, begin_ms: int, past: QueueTotals | None) -> wire.QueueForecast:
    counts = {} if past is None else past.counts
    mean, p50, p95 = _mean(past), percentile(counts, 0.5), percentile(counts, 0.95)
    measured = queue.slots if mean is not None else queue.fires
    busiest = max(range(len(measured)), key=measured.__getitem__)
    return wire.QueueForecast(
        name=name,
        fires=round(sum(queue.fires)),
        busiest_at=instant(begin_ms + busiest * HOUR_MS) if any(queue.fires) else None,
        slots=None if mean is None else queue.slots[busiest],
        slots_p95=None if p95 is None else busy_slots(queue.fires, p95 / HOUR_MS)[busiest],
        mean_ms=mean,
        p50_ms=p50,
        p95_ms=p95,
    )


def _as_crowded(
    minute: CrowdedMinute, named: Sequence[tuple[str, int, Sequence[tuple[object, str]]]]
) -> wire.CrowdedMinute:
    return wire.CrowdedMinute(
        at=instant(minute.at_ms),
        due=max(minute.minutes),
        schedules=[
            wire.CrowdingSchedule(schedule=schedule, due=due, jobs=[name for _, name in some])
            for schedule, due, some in named
        ],
    )


def _as_spread(proposal: fire_calendar.SpreadProposal) -> wire.Spread:
    return wire.Spread(
        at=proposal.at,
        due=proposal.due,
        schedule=proposal.schedule,
        jobs=proposal.jobs,
        examples=[name for _, name in proposal.examples],
        jitter=None if proposal.jitter_min is None else f"{proposal.jitter_min}m",
        shift_min=proposal.shift_min,
        then=proposal.then,
        patch=None if proposal.jitter_min is None else {"schedule": {"jitter": f"{proposal.jitter_min}m"}},
    )
