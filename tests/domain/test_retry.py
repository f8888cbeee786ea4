"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.retry import Jitter, RetryPolicy, delay_s

BOUNDS = {"none": (1.0, 1.0), "full": (0.0, 1.0), "equal": (0.75, 1.25), "scaled": (0.8, 1.2)}


def delays(policy: RetryPolicy, failures: int, times: int = 300) -> list[float]:
    rng = random.Random(7)
    return [delay_s(policy, failures=failures, rng=rng) for _ in range(times)]


def test_the_defaults() -> None:
    policy = RetryPolicy()
    assert (policy.max, policy.base, policy.cap, policy.factor, policy.jitter) == (3, "60s", "1h", 2.0, "full")


@pytest.mark.requirement(115)
def test_delays_double_up_to_the_cap() -> None:
    policy = RetryPolicy(base="60s", cap="1h", jitter="none")
    assert [delays(policy, n, 1)[0] for n in range(1, 9)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_every_kind_of_jitter_is_known_here() -> None:
    assert set(get_args(Jitter)) == set(BOUNDS)


@pytest.mark.parametrize("jitter", BOUNDS)
@pytest.mark.parametrize("failures", [1, 3, 7])
def test_jitter_stays_in_its_bounds_and_uses_them(jitter: Jitter, failures: int) -> None:
    policy = RetryPolicy(base=10, cap="10h", jitter=jitter)
    plain = 10 * 2 ** (failures - 1)
    low, high = (plain * bound for bound in BOUNDS[jitter])
    found = delays(policy, failures)
    assert low <= min(found) and max(found) <= high
    if jitter != "none":
        assert max(found) - min(found) > (high - low) * 0.9
        assert abs(sum(found) / len(found) - (low + high) / 2) < (high - low) * 0.1


@given(st.sampled_from(sorted(BOUNDS)), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 100), st.integers(1, 1001))
def test_never_above_the_cap_never_below_nothing_never_an_error(
    jitter: Jitter, base: float, cap: float, factor: float, failures: int
) -> None:
    policy = RetryPolicy(max=1000, base=base, cap=cap, factor=factor, jitter=jitter)
    assert all(0 <= delay <= cap for delay in delays(policy, failures, 3))


def test_no_base_is_no_delay_however_often() -> None:
    policy = RetryPolicy(max=1000, base=0, factor=100, jitter="none")
    assert {delays(policy, n, 1)[0] for n in (1, 2, 154, 155, 500, 1001)} == {0}
