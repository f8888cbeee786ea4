"""Deadlines judged from a schedule: fires every hour, by default active since hour 0."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.schedule.deadline import Expected, finish_by, max_gap
from mainspring.domain.schedule.recurrence import Interval

HOUR = 3_600_000
MINUTE = 60_000
HOURLY = Expected(Interval(HOUR, 0), 0)


@pytest.mark.parametrize(
    ("now", "done", "state", "at"),
    [
        (30, None, "ok", 75),  # no fire yet: the first is at 60
        (60, None, "due", 75),
        (74, None, "due", 75),
        (75, None, "missed", 75),
        (110, None, "missed", 75),
        (75, 60, "ok", 135),
        (119, 60, "ok", 135),
        (120, 60, "due", 135),
        (120, None, "missed", 75),
        (136, 60, "missed", 135),
        (136, 120, "ok", 195),
        (180, 60, "missed", 135),
        (180, 180, "ok", 255),  # a later success makes up for an earlier instant
    ],
)
def test_finish_by_a_quarter_past(now: int, done: int | None, state: str, at: int) -> None:
    done_ms = None if done is None else done * MINUTE
    found = finish_by(HOURLY, 15 * MINUTE, now_ms=now * MINUTE, done_ms=done_ms)
    assert (found.kind, found.state, found.at_ms) == ("finish_by", state, at * MINUTE)


def test_finish_by_longer_than_the_interval_waits_for_the_oldest() -> None:
    found = finish_by(HOURLY, 3 * HOUR, now_ms=3 * HOUR, done_ms=None)
    assert (found.state, found.at_ms) == ("due", 4 * HOUR)


def test_nothing_is_expected_before_a_job_is_active_nor_outside_its_start_and_end() -> None:
    resumed = Expected(Interval(HOUR, 0), 5 * HOUR + 1)
    assert finish_by(resumed, MINUTE, now_ms=5 * HOUR + 2 * MINUTE, done_ms=None).state == "ok"
    ended = Expected(Interval(HOUR, 0), 0, end_ms=2 * HOUR)
    assert finish_by(ended, MINUTE, now_ms=9 * HOUR, done_ms=2 * HOUR).at_ms is None
    assert finish_by(ended, MINUTE, now_ms=9 * HOUR, done_ms=None).state == "missed"
    begun = Expected(Interval(HOUR, 0), 0, start_ms=3 * HOUR)
    assert finish_by(begun, MINUTE, now_ms=2 * HOUR + 30 * MINUTE, done_ms=None).at_ms == 3 * HOUR + MINUTE


@given(st.integers(1, 400), st.none() | st.integers(0, 6).map(lambda hour: hour * 60), st.integers(1, 300))
def test_finish_by_agrees_with_looking_at_every_instant(now: int, done: int | None, finish: int) -> None:
    if done is not None and (done > now or done == 0):
        return
    missing = [at for at in range(60, now + 1, 60) if done is None or at > done]
    passed = [at for at in missing if at + finish <= now]
    done_ms = None if done is None else done * MINUTE
    found = finish_by(HOURLY, finish * MINUTE, now_ms=now * MINUTE, done_ms=done_ms)
    assert found.state == ("missed" if passed else "due" if missing else "ok")
    assert found.at_ms is not None and (found.at_ms <= now * MINUTE) == (found.state == "missed")


@pytest.mark.parametrize(
    ("values", "state", "at"),
    [
        ({"now_ms": 2 * HOUR, "succeeded_ms": None}, "ok", 3 * HOUR),
        ({"now_ms": 2 * HOUR + 1, "succeeded_ms": None}, "ok", 3 * HOUR),
        ({"now_ms": 3 * HOUR, "succeeded_ms": None}, "due", 3 * HOUR),
        ({"now_ms": 3 * HOUR + 1, "succeeded_ms": None}, "missed", 3 * HOUR),
        ({"now_ms": 3 * HOUR + 1, "succeeded_ms": 1}, "due", 3 * HOUR + 1),
        ({"now_ms": 9 * HOUR, "succeeded_ms": 7 * HOUR}, "ok", 10 * HOUR),
    ],
)
def test_no_longer_than_three_hours_without_a_success(values: dict[str, Any], state: str, at: int) -> None:
    found = max_gap(HOURLY, 3 * HOUR, active_from_ms=0, **values)
    assert (found.kind, found.state, found.at_ms) == ("max_gap", state, at)


def test_a_job_on_demand_may_have_a_gap_too() -> None:
    assert max_gap(None, HOUR, now_ms=MINUTE, active_from_ms=0, succeeded_ms=None).state == "ok"
    assert max_gap(None, HOUR, now_ms=HOUR + 1, active_from_ms=0, succeeded_ms=None).state == "missed"
