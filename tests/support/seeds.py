"""The seed of random tests: fixed by default, random with `TEST_SEED=random`, repeatable with `TEST_SEED=<number>`."""

from __future__ import annotations

import os
import random

import hypothesis.core
from hypothesis import HealthCheck, settings

FIXED = 20260101
_ASKED = os.environ.get("TEST_SEED", "")


def _chosen() -> int:
    if _ASKED == "random":
        # Processes that this one starts (pytest-xdist) inherit the number.
        os.environ["TEST_SEED"] = str(random.SystemRandom().randrange(1 << 32))
    return int(os.environ.get("TEST_SEED") or FIXED)


SEED = _chosen()
IS_FIXED = not _ASKED


def load_profile() -> None:
    """Configure Hypothesis: the same examples in every run, or examples of the given seed.

    No deadline: how long an example takes depends on how busy the machine is.
    """
    settings.register_profile(
        "mainspring", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=IS_FIXED, database=None
    )
    settings.load_profile("mainspring")
    if not IS_FIXED:
        hypothesis.core.global_force_seed = SEED  # type: ignore[assignment]
