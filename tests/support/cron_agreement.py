"""Compares a schedule with the oracle over a window, in every direction that the engine offers."""

from __future__ import annotations

from datetime import datetime

from mainspring.domain.schedule.schedule import Schedule
from tests.support.cron_expressions import ms
from tests.support.cron_oracle import Oracle


def agrees(oracle: Oracle, schedule: Schedule, start: datetime, end: datetime) -> list[int]:
    """The fires of a window, which the engine must give forwards, backwards, one by one, and as a number."""
    expected = [ms(fire) for fire in oracle.fires(start, end)]
    assert schedule.between(ms(start), ms(end), 100_000) == expected
    assert sorted(set(expected)) == expected
    assert schedule.count_between(ms(start), ms(end)) == len(expected)
    few = expected if len(expected) < 100 else expected[:50] + expected[-50:]
    assert [schedule.next_after(fire - 1) for fire in few] == few
    backwards = []
    fire = schedule.prev_before(ms(end) + 1)
    while fire is not None and fire > ms(start):
        backwards.append(fire)
        fire = schedule.prev_before(fire)
    assert backwards[::-1] == expected
    return expected
