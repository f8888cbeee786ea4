"""Publishes figures of this process every ten seconds, for the alert rules that the leader evaluates.

One small row per process. The figures come from existing metrics, so nothing is added to the hot path.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from prometheus_client import Histogram

from mainspring.domain.engines import figure_of
from mainspring.service import Loops, Service
from mainspring.store import measurements
from mainspring.store.db import Database
from mainspring.telemetry import metrics

INTERVAL_S = 10.0
LATENCY_SAMPLES = 6
RESULT_SAMPLES = 30


@dataclass(frozen=True, slots=True)
class CounterTotals:
    """Counters at one time; the difference between two is what happened in between."""

    settled: float
    stale: float
    latency: tuple[float, ...]  # fires by bucket of their latency
    false_locks: float


class ProcessMeasurements(Service):
    """Writes the figures of this process to the database, at an interval."""

    def __init__(self, database: Database, *, roles: Sequence[str], every_s: float = INTERVAL_S) -> None:
        self._database = database
        self._process_id = uuid4()
        self._name = f"{'+'.join(roles)} {socket.gethostname()}:{os.getpid()}"
        self._every_s = every_s
        self._seen: deque[CounterTotals] = deque([totals()], maxlen=RESULT_SAMPLES + 1)
        self._loops = Loops("measure")

    async def start(self) -> None:
        self._loops.forever("measure", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        await asyncio.sleep(self._every_s)
        await self.write()

    async def write(self) -> dict[str, float]:
        self._seen.append(totals())
        measured = self.figures()
        async with self._database.connection() as connection:
            await measurements.write_measurement(
                connection, process_id=self._process_id, name=self._name, figures=measured
            )
        return measured

    def figures(self) -> dict[str, float]:
        """Return latency of the last minute, results of the last five, and current values of the rest."""
        now, five, one = self._seen[-1], self._seen[0], self._seen[max(0, len(self._seen) - 1 - LATENCY_SAMPLES)]
        found = {
            "settled": now.settled - five.settled,
            "stale": now.stale - five.stale,
            "results_pending": _value(metrics.RESULTS_PENDING),
            "results_streamed": max(
                (_value(lag) for (role, _), lag in metrics.ENGINE_LAG._metrics.items() if role == "results"),
                default=0.0,
            ),
            "clock_skew_s": _value(metrics.CLOCK_SKEW),
            "shard_jobs": max((_value(child) for child in metrics.SHARD_JOBS._metrics.values()), default=0.0),
        }
        for (role, engine), up in metrics.ENGINE_UP._metrics.items():
            found[figure_of(role, engine)] = _value(up)
            if role == "fire_lock":
                found["false_fire_locks"] = now.false_locks - five.false_locks
            if role == "events":
                found["events_waiting_s"] = _value(metrics.EVENTS_WAITING_S)
        fires = [after - before for after, before in zip(now.latency, one.latency, strict=True)]
        if sum(fires) > 0:
            found["scheduling_p95_s"] = _percentile(metrics.SCHEDULING_LATENCY, fires, 0.95)
        return found


def totals() -> CounterTotals:
    completed = sum(_value(child) for child in metrics.JOBS_COMPLETED._metrics.values())
    buckets = tuple(bucket.get() for bucket in metrics.SCHEDULING_LATENCY._buckets)
    return CounterTotals(completed, _value(metrics.STALE_RESULTS), buckets, _value(metrics.FALSE_FIRE_LOCKS))


def _value(metric: Any) -> float:
    return float(metric._value.get())


def _percentile(histogram: Histogram, counts: Sequence[float], fraction: float) -> float:
    """Return the upper bound of the percentile's bucket; the largest finite bound stands for everything beyond."""
    left = sum(counts) * fraction
    for bound, count in zip(histogram._upper_bounds, counts, strict=True):
        left -= count
        if left <= 1e-9:
            return min(float(bound), float(histogram._upper_bounds[-2]))
    return float(histogram._upper_bounds[-2])
