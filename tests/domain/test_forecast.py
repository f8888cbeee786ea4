"""Busy slots from fires and durations, compared with every execution placed by itself."""

from __future__ import annotations

import random

import pytest

from mainspring.domain.forecast import MAX_HOURS, busy_slots

PER_FIRE = 2_000


def placed(fires: list[float], duration_h: float) -> list[float]:
    """The same by brute force: executions that begin at even distances in each hour."""
    busy = [0.0] * len(fires)
    for hour, count in enumerate(fires):
        for n in range(PER_FIRE):
            begin = hour + (n + 0.5) / PER_FIRE
            for k in range(len(fires)):
                busy[k] += count / PER_FIRE * max(0.0, min(begin + duration_h, k + 1) - max(begin, k))
    return busy


@pytest.mark.parametrize("duration_h", [0.0, 0.01, 0.5, 1.0, 1.25, 3.0, 7.5])
def test_busy_slots_are_those_of_executions_placed_one_by_one(duration_h: float) -> None:
    dice = random.Random(round(duration_h * 100))
    fires = [float(dice.choice((0, 0, 1, 40))) for _ in range(12)]
    assert busy_slots(fires, duration_h) == pytest.approx(placed(fires, duration_h), abs=0.05)


def test_a_steady_rate_keeps_rate_times_duration_busy() -> None:
    assert busy_slots([60.0] * 10, 0.25)[1:] == pytest.approx([15.0] * 9)
    assert busy_slots([2.0] * 100, 1000.0)[-1] == pytest.approx(2.0 * MAX_HOURS), "very long executions are cut"
