"""Database time on the monotonic clock, and time-ordered ids."""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.clock import LAST_MS, DatabaseClock, instant, millis
from mainspring.ids import SHARDS, new_id, shard_of

NOON = 1_794_830_400_000.0


def offset(clock: DatabaseClock) -> float:
    """Database milliseconds minus monotonic ones."""
    return clock.now_ms() - time.monotonic() * 1000


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)


def test_time_that_was_never_measured_is_an_error() -> None:
    clock = DatabaseClock()
    assert not clock.known
    with pytest.raises(RuntimeError, match="never measured"):
        clock.now_ms()


def test_the_middle_of_the_round_trip_counts(frozen: None) -> None:
    clock = DatabaseClock()
    clock.observe(NOON, 99.9, 100.1)
    assert clock.known
    assert clock.now_ms() == pytest.approx(NOON, abs=0.001)


def test_the_tightest_recent_measurement_counts(frozen: None) -> None:
    clock = DatabaseClock()
    clock.observe(NOON, 99.0, 99.002)
    tight = offset(clock)
    clock.observe(NOON + 400, 99.0, 100.0)  # within its own error of half a second
    assert offset(clock) == tight
    clock.observe(NOON + 1000.1, 100.0, 100.001)
    assert offset(clock) != tight, "a tighter one replaces it"


def test_an_old_measurement_gives_way_to_a_wider_new_one(frozen: None) -> None:
    """Clocks drift apart: after an hour, being exact an hour ago is worth less."""
    clock = DatabaseClock()
    clock.observe(NOON, 0.0, 0.001)
    old = offset(clock)
    clock.observe(NOON + 60_000 + 4, 60.0, 60.010)
    assert offset(clock) == old, "a minute later five milliseconds of doubt are more than the drift"
    clock.observe(NOON + 3_600_000 + 9, 3600.0, 3600.010)
    assert offset(clock) == pytest.approx(old + 4.5, abs=0.1)


@pytest.mark.parametrize("step_ms", [-3_600_000, -500, 500, 3_600_000])
def test_a_database_clock_that_was_set_is_followed_at_once(frozen: None, step_ms: float) -> None:
    clock = DatabaseClock()
    clock.observe(NOON, 0.0, 0.001)
    before = offset(clock)
    clock.observe(NOON + 1000 + step_ms, 1.0, 1.1)  # wider, but no doubt explains so much
    assert offset(clock) - before == pytest.approx(step_ms, abs=100)


@given(st.lists(st.tuples(st.floats(0.0001, 0.5), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_error_stays_within_half_the_round_trip(trips: list[tuple[float, float]]) -> None:
    """Whatever part of each round trip the way there took."""
    clock, at = DatabaseClock(), 1000.0
    best = float("inf")
    for trip, share in trips:
        at += 1.0
        clock.observe(NOON + (at + trip * share) * 1000, at, at + trip)
        best = min(best, trip * 500)
    found = clock.now_ms() - time.monotonic() * 1000
    assert abs(found - NOON) <= best + len(trips) * 0.05 + 0.01


def test_skew_is_this_machine_minus_the_database(monkeypatch: pytest.MonkeyPatch, frozen: None) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON / 1000 + 7)
    clock = DatabaseClock()
    clock.observe(NOON, 100.0, 100.0)
    assert clock.skew_s() == pytest.approx(7)


@given(st.integers(0, LAST_MS))
def test_instants_and_milliseconds(ms: int) -> None:
    assert millis(instant(ms)) == ms


def test_the_last_instant() -> None:
    assert instant(LAST_MS).replace(microsecond=0) == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    with pytest.raises(ValueError, match="out of range"):
        instant(LAST_MS + 1)


@given(st.integers(0, 2**48 - 1))
def test_new_ids_are_valid_and_carry_their_time(ms: int) -> None:
    found = new_id(ms)
    assert (found.version, found.variant) == (7, "specified in RFC 4122")
    assert found.int >> 80 == ms


@pytest.mark.requirement(37)
def test_new_ids_are_unique_and_sort_by_time() -> None:
    same = {new_id(NOON) for _ in range(10_000)}
    assert len(same) == 10_000
    assert max(same) < new_id(NOON + 1)


@pytest.mark.requirement(21)
def test_a_million_jobs_spread_over_the_shards_within_three_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One standard deviation of chance is 0.8 %; the sample is always the same."""
    monkeypatch.setattr(os, "urandom", random.Random(1).randbytes)
    counts, each = [0] * SHARDS, 15_625
    for n in range(SHARDS * each):
        counts[shard_of(new_id(NOON + n))] += 1
    assert min(counts) > 0.97 * each and max(counts) < 1.03 * each


def test_a_jobs_shard_never_changes() -> None:
    assert shard_of(UUID("0197f000-0000-7000-8000-0000000003ff")) == 63
    assert shard_of(UUID("0197f000-0000-7000-8000-000000000040")) == 0
