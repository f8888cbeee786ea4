"""Durations counted in buckets that grow by a fixed factor, and percentiles of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

PER_DOUBLING = 8
"""Buckets for each doubling of a duration: a percentile is at most 5 % off."""


def bucket_of(duration_ms: float) -> int:
    """The bucket of a duration; the database function `duration_bucket` computes the same."""
    return math.floor(math.log(max(duration_ms, 0) + 1) * PER_DOUBLING / math.log(2))


def duration_of(bucket: int) -> float:
    """A duration in milliseconds that stands for all of a bucket: the geometric mean of its bounds."""
    return float(2 ** ((bucket + 0.5) / PER_DOUBLING) - 1)


def bucket_above(bucket: int) -> float:
    """The duration in milliseconds that none in a bucket exceeds."""
    return float(2 ** ((bucket + 1) / PER_DOUBLING) - 1)


def merged(counted: Iterable[tuple[Sequence[int], Sequence[int]]]) -> dict[int, int]:
    """Add up lists of buckets with their counts."""
    found: dict[int, int] = {}
    for buckets, counts in counted:
        for bucket, count in zip(buckets, counts, strict=True):
            found[bucket] = found.get(bucket, 0) + count
    return found


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """The duration in milliseconds that `share` of the counted ones do not exceed; None if none is counted."""
    left = share * sum(counts.values())
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 1e-9:
            return duration_of(bucket)
    return duration_of(max(counts)) if counts else None
