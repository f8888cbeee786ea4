"""No regular expression in the source takes more than linear time, or its input is short."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest

from tests.fuzz.patterns import Found, all_patterns, pumps
from tests.support.growth import LONG_SECONDS, Pump, cpu_s, finding
from tests.support.seeds import SEED

PATTERNS = list(all_patterns())
CAP = 30_000
QUICK_S = 0.02
"""A linear pattern takes a hundredth of this for `CAP` characters."""
SHORT_INPUTS = {
    "mainspring.worker.progress": 1_000,  # TAIL_BYTES of a file
    "mainspring.domain.duration": 100,  # MAX_CHARS
    "mainspring.domain.filter": 1_000,  # MAX_FILTER
    "mainspring.domain.workflow.condition": 1_000,  # MOST_LENGTH
    "mainspring.domain.fingerprint": 2_000,  # MAX_CHARS * 4
}
"""Modules that bound what they match before they match it."""


def searched(found: Found, pump: Pump) -> str:
    """Return what is wrong with a pattern on one kind of input."""
    pattern = found.pattern
    cap = SHORT_INPUTS.get(found.place.partition(":")[0], CAP)

    def make(size: int) -> Any:
        return pump(size).encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else pump(size)

    for call in found.calls:
        is_quick = cpu_s(call, make(min(cap, 24))) < QUICK_S and cpu_s(call, make(cap)) < QUICK_S
        if not is_quick and (wrong := finding(call, make, cap=cap, limit_s=QUICK_S * 5)):
            return f"{found}: {pattern.pattern!r} on {pump}: {wrong}"
    return ""


@pytest.mark.parametrize("found", PATTERNS, ids=str)
def test_pattern_is_linear(found: Found) -> None:
    rng = random.Random(f"{SEED}{found}")
    wrong = next((w for pump in pumps(found.pattern, rng) if (w := searched(found, pump))), "")
    assert not wrong


@pytest.mark.skipif(not LONG_SECONDS, reason="the long form: make fuzz")
def test_random_inputs_for_long() -> None:
    rng, until = random.Random(SEED), time.monotonic() + LONG_SECONDS / 3
    while time.monotonic() < until:
        found = rng.choice(PATTERNS)
        for pump in pumps(found.pattern, rng, extra=20):
            assert not (wrong := searched(found, pump)), wrong


def test_the_inventory_is_complete() -> None:
    places = {found.place.partition(":")[0] for found in PATTERNS}
    assert len(PATTERNS) > 90
    assert {"mainspring.codec", "mainspring.domain.template", "mainspring.web.draw.terminal_output"} <= places


@pytest.mark.parametrize(
    "planted",
    [
        r"(?:[-_.:]?\d+)+$",
        r"\{\{\s*([^{}]*?)\s*\}\}",
        r"(a+)+b",
        r"(?P<message>.*)\n  (?P<shown>.*)\n  (?P<caret> *\^+)",
        r"\b[a-z][a-z0-9+.-]*://[^\s]+",
        r" - at `(.*)`\Z",
        r"(\w+\s?)*;",
    ],
)
def test_a_planted_pattern_is_found(planted: str) -> None:
    found = Found("planted:1", re.compile(planted, re.DOTALL))
    rng = random.Random(SEED)
    assert any(searched(found, pump) for pump in pumps(found.pattern, rng, extra=40)), planted
