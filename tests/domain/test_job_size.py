"""Suggested sizes: never below what was measured, not far above it, and none from a few attempts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.job_size import ENOUGH, HEADROOM, JobSize, MeasuredUse, suggest
from mainspring.domain.placement.resources import parse_amount
from mainspring.domain.statistics import bucket_of


@given(
    memory=st.integers(1, 2**45),
    cores=st.integers(0, 10**6),
    durations=st.lists(st.integers(0, 10**8), min_size=ENOUGH, max_size=30),
)
def test_sizes_leave_headroom_and_are_not_far_above(memory: int, cores: int, durations: list[int]) -> None:
    buckets: dict[int, int] = {}
    for duration_ms in durations:
        buckets[bucket_of(duration_ms)] = buckets.get(bucket_of(duration_ms), 0) + 1
    found = suggest(MeasuredUse(ENOUGH, memory, cores), buckets)
    assert found.memory is not None and found.cpu is not None and found.timeout_s is not None
    bytes_ = parse_amount("memory", found.memory)
    assert HEADROOM * memory <= bytes_ + 1 and bytes_ <= 1.6 * memory + 16 * 2**20
    millicores = parse_amount("cpu", found.cpu)
    assert HEADROOM * cores <= millicores + 0.5 and millicores <= max(100, HEADROOM * cores + 100)
    assert found.timeout_s >= 1.2 * max(durations) / 1000, "what succeeded before must not time out"
    assert found.timeout_s >= 60


def test_a_few_attempts_suggest_nothing() -> None:
    assert suggest(MeasuredUse(ENOUGH - 1, 10**9, 1000), {bucket_of(1000): ENOUGH - 1}) == JobSize(None, None, None)


def test_a_known_job() -> None:
    found = suggest(MeasuredUse(200, 300 * 2**20, 1750), {bucket_of(90_000): 190, bucket_of(100_000): 10})
    assert found == JobSize("384Mi", "2.2", 300)
