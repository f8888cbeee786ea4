"""Simulates a queueing system: how long executions wait for one of so many slots. Pure, in virtual time.

Every execution takes the first free slot, in order of its due time, as a worker that serves all queues gives it.
Nothing is random: the durations of a group come from its measured distribution at evenly spaced shares, in a fixed
order that mixes short and long ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mainspring.domain.statistics import bucket_of, duration_of

MINUTE_MS = 60_000
SHARES = 64
ROUNDS = 50
"""Executions due together for each slot that are simulated one by one; of more, several run in a row."""
POINTS = 4
STRIDE = 23
"""Coprime to SHARES: successive executions take shares far apart, and 64 of them take each share once."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Executions that become due together: at an instant, so many, in a queue, with one distribution of durations."""

    at_ms: int
    count: int
    queue: str
    durations_ms: Sequence[float]


@dataclass(slots=True)
class QueueWaits:
    """Waits of a queue, counted by bucket."""

    executions: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    max_ms: float = 0.0
    max_at_ms: int | None = None

    def add(self, wait_ms: float, at_ms: int, count: int) -> None:
        self.executions += count
        bucket = bucket_of(wait_ms)
        self.counts[bucket] = self.counts.get(bucket, 0) + count
        if wait_ms > self.max_ms:
            self.max_ms, self.max_at_ms = wait_ms, at_ms


@dataclass(slots=True)
class Simulated:
    """What happened: waits by queue, executions due and the longest wait by minute, and how long slots were busy."""

    queues: dict[str, QueueWaits] = field(default_factory=dict)
    minutes: dict[int, tuple[int, float]] = field(default_factory=dict)
    executions: int = 0
    until_ms: int = 0  # earlier than wanted, if that took too many steps
    busy_ms: float = 0.0

    def add(self, arrivals: Arrivals, wait_ms: float, count: int) -> None:
        self.queues.setdefault(arrivals.queue, QueueWaits()).add(wait_ms, arrivals.at_ms, count)
        minute = arrivals.at_ms // MINUTE_MS
        due, longest = self.minutes.get(minute, (0, 0.0))
        self.minutes[minute] = due + count, max(longest, wait_ms)
        self.executions += count


def simulate(arrivals: Iterable[Arrivals], *, slots: int, end_ms: int, most: int) -> Simulated:
    """Run the executions, which come in order of time, until `end_ms` or for `most` steps. CPU-bound.

    Of executions that become due together, and are many times more than the slots, a step runs several in a row.
    """
    found = Simulated(until_ms=end_ms)
    free = [0.0] * slots  # when each slot is free; a heap
    turns: dict[int, int] = {}
    for group in arrivals:
        row = max(1, group.count // (slots * ROUNDS))
        most -= -(-group.count // row)
        if most < 0:
            found.until_ms = group.at_ms
            break
        turn = turns.get(id(group.durations_ms), 0)
        for first in range(0, group.count, row):
            start = max(free[0], float(group.at_ms))
            takes_ms = group.durations_ms[turn * STRIDE % len(group.durations_ms)]
            turn += 1
            count = min(row, group.count - first)
            heapq.heapreplace(free, start + count * takes_ms)
            found.busy_ms += count * takes_ms
            _wait_in_row(found, group, start - group.at_ms, takes_ms, count)
        turns[id(group.durations_ms)] = turn
    return found


def _wait_in_row(found: Simulated, group: Arrivals, wait_ms: float, takes_ms: float, count: int) -> None:
    """The waits of executions that one slot runs one after the other: at most POINTS of them stand for all."""
    points = min(count, POINTS)
    for point in range(points):
        number = count - 1 if point == points - 1 else point * count // points
        share = (point + 1) * count // points - point * count // points
        found.add(group, wait_ms + number * takes_ms, share)


def durations(counts: Mapping[int, int]) -> list[float]:
    """Durations at SHARES evenly spaced shares of a distribution by bucket; without counts, none."""
    total = sum(counts.values())
    found: list[float] = []
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        upto = math.floor(SHARES * seen / total)
        found += [duration_of(bucket)] * (upto - len(found))
    return found


def scaled(shape: Sequence[float], mean_ms: float) -> list[float]:
    """The same distribution with another mean."""
    own = sum(shape) / len(shape) if shape else 0.0
    return [mean_ms * one / own for one in shape] if own else [mean_ms]
