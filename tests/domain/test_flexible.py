"""Placement of deadline-flexible executions: never before the fire, never too late to end, cheapest, then quietest."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.flexible import (
    MINUTE_MS,
    Flexible,
    Flight,
    Minutes,
    flexible_problems,
    margin_s,
    place,
    place_all,
    read_window,
    window_key,
)
from mainspring.domain.schedule.spec import ScheduleSpec

DAILY = ScheduleSpec(cron="0 0 * * *")
BEGIN_MS = 1_767_225_600_000  # 2026-01-01


def ms(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def minutes(busy: list[float], prices: list[float] | None = None, closed: list[bool] | None = None) -> Minutes:
    return Minutes(BEGIN_MS, list(busy), prices or [1.0] * len(busy), closed or [])


def at(minute: float) -> int:
    return BEGIN_MS + round(minute * MINUTE_MS)


@given(
    fire=st.integers(0, 120 * MINUTE_MS),
    window_min=st.integers(0, 600),
    takes_ms=st.integers(1, 300 * MINUTE_MS),
    busy=st.lists(st.floats(0, 100), min_size=1, max_size=800),
    data=st.data(),
)
def test_a_start_is_in_the_window_and_leaves_the_margin(
    fire: int, window_min: int, takes_ms: int, busy: list[float], data: st.DataObject
) -> None:
    prices = data.draw(st.lists(st.sampled_from([0.2, 1.0]), min_size=len(busy), max_size=len(busy)))
    closed = data.draw(st.lists(st.booleans(), min_size=len(busy), max_size=len(busy)))
    flight = Flight(BEGIN_MS + fire, BEGIN_MS + fire + window_min * MINUTE_MS, takes_ms)
    start = place(flight, minutes(busy, prices, closed))
    assert start >= flight.fire_ms, "early"
    if start > flight.fire_ms:  # where nothing fits, the fire itself is the best that is left
        assert start + takes_ms + 1000 * margin_s(takes_ms / 1000) <= flight.end_ms
        assert not closed[(start - BEGIN_MS) // MINUTE_MS], "a blackout would hold it back"
    again = place(flight, minutes(busy, prices, closed))
    assert again == start, "the same input has the same start"


@given(busy=st.lists(st.integers(0, 5), min_size=130, max_size=200), takes=st.integers(1, 30))
def test_no_start_is_quieter(busy: list[int], takes: int) -> None:
    """Against brute force over all starts."""
    flight = Flight(at(0), at(120), takes * MINUTE_MS)
    start = place(flight, minutes([float(n) for n in busy]))

    def load(minute: int) -> int:
        return sum(busy[minute : minute + takes])

    chosen = (start - BEGIN_MS) // MINUTE_MS
    latest = (flight.latest_ms - BEGIN_MS) // MINUTE_MS
    assert load(chosen) == min(load(n) for n in range(latest + 1))


def test_the_cheapest_window_goes_before_the_quietest() -> None:
    prices = [1.0] * 60 + [0.4] * 60 + [1.0] * 240
    busy = [0.0] * 60 + [5.0] * 60 + [0.0] * 240
    start = place(Flight(at(0), at(300), 20 * MINUTE_MS), minutes(busy, prices))
    assert at(60) <= start <= at(100)


def test_executions_of_one_fire_do_not_share_a_minute_while_others_are_free() -> None:
    starts = place_all([Flight(at(0), at(90), 10 * MINUTE_MS)] * 7, minutes([0.0] * 100))
    assert sorted(starts) == [at(10 * n) for n in range(7)]


def test_a_window_that_is_too_short_starts_at_the_fire() -> None:
    assert place(Flight(at(3), at(20), 19 * MINUTE_MS), minutes([9.0] * 5 + [0.0] * 95)) == at(3)


@pytest.mark.parametrize(
    ("fire", "zone", "end"),
    [
        ("2026-01-05T00:00", "UTC", "2026-01-05T06:00"),
        ("2026-01-05T06:00", "UTC", "2026-01-06T06:00"),
        ("2026-01-05T22:00", "Europe/Berlin", "2026-01-06T06:00"),
        ("2026-03-29T00:00", "Europe/Berlin", "2026-03-29T06:00"),
        ("2026-10-25T00:00", "Europe/Berlin", "2026-10-25T06:00"),
    ],
)
def test_before_is_the_wall_clock_of_the_schedule(fire: str, zone: str, end: str) -> None:
    window = read_window(window_key(Flexible(before="06:00"), zone))
    assert window.end_ms(ms(fire, zone)) == ms(end, zone)


def test_before_a_time_that_a_clock_change_skips_or_repeats() -> None:
    window = read_window(window_key(Flexible(before="02:30"), "Europe/Berlin"))
    assert window.end_ms(ms("2026-03-29T00:00", "Europe/Berlin")) == ms("2026-03-29T01:00", "UTC"), "after the gap"
    assert window.end_ms(ms("2026-10-25T00:00", "Europe/Berlin")) == ms("2026-10-25T00:30", "UTC"), "the first of two"


@given(st.integers(0, 3 * 366 * 86_400).map(lambda s: BEGIN_MS // 1000 + s), st.sampled_from(["Europe/Berlin", "UTC"]))
def test_a_window_until_a_wall_time_ends_within_25_hours(fire_s: int, zone: str) -> None:
    fire_ms = fire_s * 1000
    end_ms = read_window(window_key(Flexible(before="06:00"), zone)).end_ms(fire_ms)
    assert 0 < end_ms - fire_ms <= 25 * 3_600_000
    assert datetime.fromtimestamp(end_ms / 1000, ZoneInfo(zone)).strftime("%H:%M") == "06:00"


@pytest.mark.parametrize(
    ("flexible", "schedule", "start_by", "pointer"),
    [
        (Flexible(within="6h"), None, None, "/flexible"),
        (Flexible(within="6h"), ScheduleSpec(at="2030-01-01"), None, "/flexible"),
        (Flexible(), DAILY, None, "/flexible"),
        (Flexible(within="6h", before="06:00"), DAILY, None, "/flexible"),
        (Flexible(before="6:00"), DAILY, None, "/flexible/before"),
        (Flexible(before="24:00"), DAILY, None, "/flexible/before"),
        (Flexible(within="1m"), DAILY, None, "/flexible/within"),
        (Flexible(within="2d"), DAILY, None, "/flexible/within"),
        (Flexible(within="30m", takes="29m30s"), DAILY, None, "/flexible/takes"),
        (Flexible(within="6h"), ScheduleSpec(cron="0 0 * * *", jitter="5m"), None, "/schedule/jitter"),
        (Flexible(within="6h"), DAILY, "1h", "/start_by"),
    ],
)
def test_a_window_that_cannot_work_is_refused(
    flexible: Flexible, schedule: ScheduleSpec | None, start_by: str | None, pointer: str
) -> None:
    assert [problem.pointer for problem in flexible_problems(flexible, schedule, start_by)] == [pointer]


@given(takes_s=st.integers(1, 3000), window_min=st.integers(5, 120))
def test_the_latest_start_leaves_the_margin(takes_s: int, window_min: int) -> None:
    """The later, the quieter: only the end of the window keeps it from starting later."""
    flight = Flight(at(0), at(window_min), takes_s * 1000)
    start = place(flight, minutes([float(1000 - n) for n in range(300)]))
    spare_s = window_min * 60 - takes_s - margin_s(takes_s)
    assert start == at(max(0, spare_s // 60))
