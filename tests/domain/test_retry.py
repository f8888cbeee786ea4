"""When a failed attempt is tried again."""

from __future__ import annotations

import random
from typing import Any, get_args
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.retry import Jitter, RetryPolicy, delay_s, describe_retries, error_type, is_retried

BOUNDS: dict[Jitter, tuple[float, float]] = {
    "none": (1.0, 1.0),
    "full": (0.0, 1.0),
    "equal": (0.75, 1.25),
    "scaled": (0.8, 1.2),
}


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
    assert set(get_args(Jitter)) == {*BOUNDS, "decorrelated"}


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


@pytest.mark.requirement(116)
def test_each_kind_of_jitter_has_its_distribution() -> None:
    """Deciles of 20,000 delays against those of the distribution that the documentation names."""
    rng = random.Random(11)
    for jitter, (low, high) in BOUNDS.items():
        policy = RetryPolicy(base=100, cap="10h", jitter=jitter)
        assert deciles([delay_s(policy, failures=1, rng=rng) for _ in range(20_000)]) == pytest.approx(
            [100 * (low + (high - low) * n / 10) for n in range(1, 10)], rel=0.03
        )
    # Decorrelated: the first is even between base and three times base, the second between base and three times the
    # first; the mean of that is (base + 3 * mean of the first) / 2.
    policy = RetryPolicy(base=100, cap="10h", jitter="decorrelated")
    first = [delay_s(policy, failures=1, rng=rng) for _ in range(20_000)]
    assert deciles(first) == pytest.approx([100 + 200 * n / 10 for n in range(1, 10)], rel=0.03)
    second = [delay_s(policy, failures=2, rng=rng) for _ in range(20_000)]
    assert sum(second) / len(second) == pytest.approx((100 + 3 * 200) / 2, rel=0.03)
    assert min(second) >= 100 and 860 < max(second) <= 900


def deciles(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[len(ordered) * n // 10] for n in range(1, 10)]


def test_a_decorrelated_delay_follows_from_the_one_before() -> None:
    """It is stored nowhere, and still between base and three times the one this very execution has waited."""
    policy = RetryPolicy(base=10, cap="30m", jitter="decorrelated")
    for _ in range(200):
        execution, before = uuid4(), 10.0
        for failures in range(1, 12):
            delay = delay_s(policy, failures=failures, rng=random.Random(), execution_id=execution)
            assert 10 <= delay <= min(1800, 3 * before)
            before = delay


@pytest.mark.parametrize(
    ("policy", "ending", "again"),
    [
        ({}, ("failed", 1, "exit code 1"), True),
        ({}, ("timed_out", None, None), True),
        ({}, ("lost", None, None), True),
        ({"on": ("failed",)}, ("timed_out", None, None), False),
        ({"on": ("timed_out", "lost")}, ("failed", 1, None), False),
        ({"only_exit_codes": (75,)}, ("failed", 75, None), True),
        ({"only_exit_codes": (75,)}, ("failed", 1, None), False),
        ({"only_exit_codes": (75,)}, ("timed_out", None, None), True),
        ({"never_exit_codes": (2,)}, ("failed", 2, None), False),
        ({"never_exit_codes": (2,)}, ("failed", 3, None), True),
        ({"only_errors": ("TimeoutError",)}, ("failed", None, "TimeoutError: slow"), True),
        ({"only_errors": ("TimeoutError",)}, ("failed", None, "ValueError: no\n\nTimeoutError: x"), False),
        ({"only_errors": ("Busy",)}, ("failed", None, "app.errors.Busy: later"), True),
        ({"only_errors": ("other.Busy",)}, ("failed", None, "app.errors.Busy: later"), False),
        ({"never_errors": ("ValueError",)}, ("failed", None, "ValueError"), False),
        ({"never_errors": ("ValueError",)}, ("failed", None, "KeyError: 'a'"), True),
        ({"only_exit_codes": (75,), "only_errors": ("Busy",)}, ("failed", None, "Busy: x"), True),
        ({"only_exit_codes": (75,), "never_errors": ("Busy",)}, ("failed", 75, "Busy: x"), False),
    ],
)
def test_what_is_tried_again(policy: dict[str, Any], ending: tuple[Any, int | None, str | None], again: bool) -> None:
    outcome, exit_code, error = ending
    assert is_retried(RetryPolicy(**policy), outcome=outcome, exit_code=exit_code, error=error) is again


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ValueError: no", "ValueError"),
        ("app.errors.Busy: later\n\nTraceback", "app.errors.Busy"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("exit code 3", None),
        ("the answer was 503", None),
        (None, None),
        ("", None),
        ("127.0.0.1:80 can't be reached: no", None),
    ],
)
def test_the_type_of_an_error(error: str | None, kind: str | None) -> None:
    assert error_type(error) == kind


def test_a_policy_in_words() -> None:
    assert describe_retries(RetryPolicy()) == "3, from 60s to 1h"
    assert describe_retries(RetryPolicy(max=0)) == "none"
    policy = RetryPolicy(max=2, jitter="none", on=("failed",), never_exit_codes=(2, 3), only_errors=("OSError",))
    assert describe_retries(policy) == (
        "2, from 60s to 1h; no jitter; only if failed; never exit code 2, 3; only OSError"
    )


@given(
    st.sampled_from(sorted(get_args(Jitter))),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(1, 100),
    st.integers(1, 1001),
)
def test_never_above_the_cap_never_below_nothing_never_an_error(
    jitter: Jitter, base: float, cap: float, factor: float, failures: int
) -> None:
    policy = RetryPolicy(max=1000, base=base, cap=cap, factor=factor, jitter=jitter)
    assert all(0 <= delay <= cap for delay in delays(policy, failures, 3))


def test_no_base_is_no_delay_however_often() -> None:
    policy = RetryPolicy(max=1000, base=0, factor=100, jitter="none")
    assert {delays(policy, n, 1)[0] for n in (1, 2, 154, 155, 500, 1001)} == {0}
