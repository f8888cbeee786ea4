"""Percentiles of counted durations."""

from __future__ import annotations

import random

import pytest

from mainspring.domain.statistics import bucket_of, duration_of, merged, percentile


@pytest.mark.parametrize("ms", [0, 1, 2, 7, 100, 999, 60_000, 86_400_000, 2**31 - 1])
def test_a_bucket_stands_for_a_duration_within_five_percent_or_half_a_millisecond(ms: int) -> None:
    assert duration_of(bucket_of(ms)) == pytest.approx(ms, rel=0.05, abs=0.5)


def test_percentiles_of_merged_parts_are_those_of_the_whole() -> None:
    rng = random.Random(7)
    durations = sorted(int(rng.lognormvariate(6, 1.5)) for _ in range(5_000))
    parts = [durations[n::7] for n in range(7)]
    counted = merged(([bucket_of(ms) for ms in part], [1] * len(part)) for part in parts)
    for share in (0.5, 0.95, 0.99):
        assert percentile(counted, share) == pytest.approx(durations[round(share * 5_000) - 1], rel=0.06)


def test_nothing_has_no_percentile() -> None:
    assert percentile({}, 0.5) is None
