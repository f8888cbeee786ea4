"""Plans the starts of deadline-flexible jobs ahead of their fires. The leading scheduler runs it.

Firing takes a planned start in the statement that inserts the execution, so it is decided once: a restart, another
leader or a new plan changes the starts of later fires only. A fire without a plan starts at its instant.

Each group of jobs with the same schedule, queue and window is placed after those with earlier fires, beside the fixed
load of its queue over all tenants, at the lowest price first. See domain/flexible.py for the rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog

from mainspring.clock import instant
from mainspring.domain.costs import ALWAYS, PriceWindows
from mainspring.domain.flexible import BUNDLES, MINUTE_MS, Flight, Minutes, place, read_window
from mainspring.domain.forecast import HOUR_MS, add_fires
from mainspring.domain.schedule.blackouts import Blackouts
from mainspring.domain.schedule.budget import BATCH_STEPS, FIRE_STEPS, REQUEST_STEPS, TooCostly, steps
from mainspring.domain.schedule.schedule import Schedule, compile_key
from mainspring.domain.statistics import bucket_above
from mainspring.store import blackouts, jobs, planned_starts
from mainspring.store.db import Connection, Database, database_now_ms
from mainspring.store.planned_starts import FixedLoad, FlexibleGroup, PlannedFire, TakenStarts

log = structlog.get_logger()

EVERY_MS = 5 * MINUTE_MS
REST = 20
"""A round is followed by a rest of this many times its duration."""
AHEAD_MS = 26 * HOUR_MS
"""Fires are planned this long ahead: a daily job has a plan at any time."""
LEAD_HOURS = 6
MINUTES = (AHEAD_MS + 25 * HOUR_MS) // MINUTE_MS
MAX_GROUPS = 500
MAX_FIRES = 30
"""Fires planned for one group; a job that fires every few minutes has the next ones planned."""
MAX_FLIGHTS = 5_000
"""Starts of one round, those of the next fires first. A start takes up to 0.3 ms."""
MAX_TAKEN = 2_000
MAX_SCHEDULES = 400
SAMPLED_JOBS = 200_000
MEASURED = timedelta(days=7)
MEASURED_JOBS = 3
ENOUGH = 5
"""Successes from which the longest one is what a job takes, if its author does not say."""


@dataclass(slots=True)
class Known:
    """What a round has read."""

    groups: Sequence[FlexibleGroup]
    loads: Sequence[FixedLoad] = ()
    weight: float = 1.0  # of each sampled job
    means: Mapping[tuple[int, str], float] = field(default_factory=dict)
    longest: Mapping[UUID, tuple[int, int]] = field(default_factory=dict)
    taken: Sequence[TakenStarts] = ()
    closed: Blackouts = field(default_factory=Blackouts)


class StartPlanner:
    """Plans every few minutes, and when flexible jobs have changed."""

    def __init__(self, database: Database, *, prices: PriceWindows = ALWAYS) -> None:
        self._database = database
        self._prices = prices
        self._planned: Sequence[FlexibleGroup] = ()
        self._next_ms = 0

    async def run_due(self) -> float | None:
        """Plan if it is time. Return the seconds until the next round; None without flexible jobs."""
        async with self._database.connection() as connection:
            if not self._planned and not await planned_starts.has_flexible_jobs(connection):
                return None
            began_ms = int(await database_now_ms(connection))
            groups = await planned_starts.flexible_groups(connection, most=MAX_GROUPS, most_jobs=BUNDLES)
            if groups == self._planned and began_ms < self._next_ms:
                return (self._next_ms - began_ms) / 1000
            known = await self._read(connection, groups, began_ms)
        plans = await asyncio.to_thread(plan, known, began_ms, self._prices)
        async with self._database.transaction() as connection:
            await planned_starts.replace_plans(connection, now=instant(began_ms), plans=plans)
            now_ms = int(await database_now_ms(connection))
        log.debug("starts.planned", fires=len(plans), starts=sum(len(p.starts_ms) for p in plans))
        self._planned, self._next_ms = groups, max(began_ms + EVERY_MS, now_ms + REST * (now_ms - began_ms))
        return (self._next_ms - now_ms) / 1000

    async def _read(self, connection: Connection, groups: Sequence[FlexibleGroup], now_ms: int) -> Known:
        if not groups:
            return Known(groups)
        part = min(1.0, SAMPLED_JOBS / max(await jobs.estimated_jobs(connection), 1))
        loads = await planned_starts.fixed_loads(connection, most=MAX_SCHEDULES, percent=100 * part)
        since = instant(now_ms) - MEASURED
        return Known(
            groups,
            loads,
            1 / part,
            await planned_starts.typical_durations(
                connection, loads=[(load.schedule_id, load.queue) for load in loads], since=since, each=MEASURED_JOBS
            ),
            await planned_starts.longest_durations(
                connection, job_ids=[job_id for group in groups for job_id in group.job_ids or ()], since=since
            ),
            await planned_starts.taken_starts(connection, now=instant(now_ms), most=MAX_TAKEN),
            Blackouts(await blackouts.open_blackouts(connection, tenant=None)),
        )


def plan(known: Known, now_ms: int, prices: PriceWindows) -> list[PlannedFire]:
    """The starts of the fires after `now_ms`, the next ones first. CPU-bound: run it in a thread."""
    begin_ms = now_ms - now_ms % MINUTE_MS
    with steps(BATCH_STEPS):
        ahead = sorted(_fires_ahead(known.groups, now_ms), key=lambda found: (found[0], found[1]))
        queues = {queue: _minutes(known, queue, begin_ms, prices) for queue in {g.queue for g in known.groups}}
        plans: list[PlannedFire] = []
        left = MAX_FLIGHTS
        for fire_ms, number, end_ms in ahead:
            group = known.groups[number]
            found = _place_group(group, known, Flight(fire_ms, end_ms, 0.0), queues[group.queue])
            if found is not None:
                plans.append(found)
                left -= len(found.starts_ms)
            if left <= 0:
                break
    return plans


def _fires_ahead(groups: Sequence[FlexibleGroup], now_ms: int) -> list[tuple[int, int, int]]:
    """Fires with the number of their group and the end of their window, which is not after the next fire."""
    found = []
    for number, group in enumerate(groups):
        with suppress(TooCostly), steps(FIRE_STEPS):
            schedule, window = compile_key(group.key), read_window(group.window)
            fires = schedule.between(now_ms, now_ms + AHEAD_MS, MAX_FIRES)
            for fire_ms in fires:
                following = schedule.next_after(fire_ms)
                end_ms = window.end_ms(fire_ms)
                found.append((fire_ms, number, end_ms if following is None else min(end_ms, following)))
    return found


def _minutes(known: Known, queue: str, begin_ms: int, prices: PriceWindows) -> Minutes:
    """What a queue is expected to do without the fires that are placed now."""
    minutes = Minutes(begin_ms, [0.0] * MINUTES, prices.factors(begin_ms, MINUTES, MINUTE_MS))
    if known.closed:
        with suppress(TooCostly):
            minutes.closed = known.closed.minutes(queue, begin_ms, MINUTES, MINUTE_MS)
    for load in known.loads:
        if load.queue == queue and (mean_ms := known.means.get((load.schedule_id, queue))):
            with suppress(TooCostly), steps(REQUEST_STEPS):
                schedule: Schedule = compile_key(load.key)
                add_fires(minutes, schedule, load.jobs * known.weight, mean_ms, lead_hours=LEAD_HOURS)
    for taken in known.taken:
        if taken.queue == queue:
            for start_ms in taken.starts_ms:
                minutes.add(start_ms, taken.takes_ms, taken.executions / len(taken.starts_ms))
    return minutes


def _place_group(group: FlexibleGroup, known: Known, at: Flight, minutes: Minutes) -> PlannedFire | None:
    """The starts of one fire; None if no duration is known, so that no start but the fire itself is safe."""
    expected = _takes_ms(group, known)
    if not any(expected):
        return None
    weight = group.jobs / len(expected)
    starts = [
        place(Flight(at.fire_ms, at.end_ms, takes_ms, weight), minutes) if takes_ms else at.fire_ms
        for takes_ms in expected
    ]
    return PlannedFire(
        group.schedule_id,
        at.fire_ms,
        group.queue,
        group.window,
        at.end_ms,
        starts,
        group.job_ids,
        max(expected),
        group.jobs,
    )


def _takes_ms(group: FlexibleGroup, known: Known) -> list[float]:
    """The expected duration for each start; 0 where it is not known."""
    stated = read_window(group.window).takes_s
    if group.job_ids is None:
        return [1000 * (stated or 0.0)] * BUNDLES
    if stated is not None:
        return [1000 * stated] * len(group.job_ids)
    found = []
    for job_id in group.job_ids:
        ran, bucket = known.longest.get(job_id, (0, 0))
        found.append(bucket_above(bucket) if ran >= ENOUGH else 0.0)
    return found
