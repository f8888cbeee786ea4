"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from typing import Annotated, Literal

import msgspec

from mainspring.domain.duration import parse_duration

Jitter = Literal["full", "equal", "scaled", "none"]


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """At most `max` retries, each `base * factor**n` later, capped, spread by `jitter`."""

    max: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    base: str | int | float = "60s"
    cap: str | int | float = "1h"
    factor: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    jitter: Jitter = "full"


def delay_s(policy: RetryPolicy, *, failures: int, rng: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure (1 for the first)."""
    base, cap = parse_duration(policy.base), parse_duration(policy.cap)
    try:
        plain = min(cap, base * policy.factor ** (failures - 1))
    except OverflowError:
        plain = cap if base else 0.0
    match policy.jitter:
        case "full":
            return rng.uniform(0, plain)
        case "equal":
            return min(cap, plain * rng.uniform(0.75, 1.25))
        case "scaled":
            return min(cap, plain * rng.uniform(0.8, 1.2))
        case "none":
            return plain
