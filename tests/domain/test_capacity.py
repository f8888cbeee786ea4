"""The simulation of slots: equal to a naive one, conserves work, and stands for many executions with few steps."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.capacity import SHARES, STRIDE, Arrivals, durations, scaled, simulate
from mainspring.domain.statistics import bucket_of, percentile

END = 10**9

arrivals = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from(["a", "b"])), min_size=1, max_size=12
).map(lambda found: [Arrivals(at, count, queue, [300.0, 900.0]) for at, count, queue in sorted(found)])


def naive(groups: list[Arrivals], slots: int) -> list[tuple[str, float]]:
    """Each execution looks at every slot."""
    free, turns, waits = [0.0] * slots, dict.fromkeys((id(g.durations_ms) for g in groups), 0), []
    for group in groups:
        for _ in range(group.count):
            turn = turns[id(group.durations_ms)]
            turns[id(group.durations_ms)] += 1
            slot = free.index(min(free))
            start = max(free[slot], group.at_ms)
            free[slot] = start + group.durations_ms[turn * STRIDE % len(group.durations_ms)]
            waits.append((group.queue, start - group.at_ms))
    return waits


@given(arrivals, st.integers(1, 5))
def test_it_waits_as_a_naive_simulation(groups: list[Arrivals], slots: int) -> None:
    found, expected = simulate(groups, slots=slots, end_ms=END, most=10**6), naive(groups, slots)
    assert found.executions == len(expected) and found.until_ms == END
    for name, waits in found.queues.items():
        own = [wait for queue, wait in expected if queue == name]
        assert waits.executions == len(own) and waits.max_ms == max(own)
        counts: dict[int, int] = {}
        for wait in own:
            counts[bucket_of(wait)] = counts.get(bucket_of(wait), 0) + 1
        assert waits.counts == counts
    assert sum(due for due, _ in found.minutes.values()) == len(expected)


def test_a_herd_waits_in_rounds() -> None:
    found = simulate([Arrivals(0, 100, "a", [1000.0])], slots=10, end_ms=END, most=10**6)
    waits = found.queues["a"]
    assert waits.max_ms == 9_000 and percentile(waits.counts, 0.5) == pytest.approx(4_000, rel=0.05)


def test_a_million_together_take_few_steps_and_wait_the_same() -> None:
    began = time.perf_counter()
    found = simulate([Arrivals(0, 1_000_000, "a", [100.0])], slots=40, end_ms=END, most=5_000)
    assert found.executions == 1_000_000 and found.until_ms == END
    waits = found.queues["a"]
    assert waits.max_ms == pytest.approx(100 * 1_000_000 / 40, rel=0.03)
    assert percentile(waits.counts, 0.5) == pytest.approx(waits.max_ms / 2, rel=0.05)
    assert time.perf_counter() - began < 2, "steps, not executions"


def test_too_many_steps_end_it_where_it_says() -> None:
    groups = [Arrivals(n * 1000, 10, "a", [1.0]) for n in range(100)]
    found = simulate(groups, slots=10, end_ms=END, most=505)
    assert (found.executions, found.until_ms) == (500, 50_000)


def test_durations_follow_the_measured_shares() -> None:
    counts = {bucket_of(100): 75, bucket_of(10_000): 25}
    shape = durations(counts)
    assert len(shape) == SHARES and sum(one > 1000 for one in shape) == SHARES / 4
    assert len({n * STRIDE % SHARES for n in range(SHARES)}) == SHARES, "each share once"
    assert sum(scaled(shape, 50.0)) / SHARES == pytest.approx(50)
    assert scaled([], 70.0) == [70.0]
