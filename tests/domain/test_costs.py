"""Prices of worker time."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from mainspring.domain.costs import Prices, read_price_windows, read_prices
from mainspring.domain.errors import Invalid
from mainspring.domain.placement.resources import parse_amounts

HOUR_MS = 3_600_000


def test_a_slot_and_the_requested_resources_are_paid_by_the_hour() -> None:
    prices = read_prices("slot=0.01, cpu=0.03,memory=0.004,gpu=2.5,currency=eur")
    assert prices.currency == "EUR" and prices.known
    asked = parse_amounts({"cpu": "500m", "memory": "2Gi", "gpu": 1, "licence": 3})
    assert prices.of(2 * HOUR_MS, asked) == pytest.approx(2 * (0.01 + 0.015 + 0.008 + 2.5))
    assert prices.of(HOUR_MS, {}) == 0.01


def test_without_prices_nothing_has_a_cost() -> None:
    assert read_prices("") == Prices() and not read_prices("").known


@pytest.mark.parametrize(
    "text", ["cpu", "cpu=", "cpu=cheap", "cpu=-1", "cpu=nan", "cpu=inf", "CPU!=1", "currency=euros", "a=1," * 60]
)
def test_what_is_not_a_price_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="prices"):
        read_prices(text)


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


WINDOWS = "timezone=Europe/Berlin; fri-sun 20:00-06:00=0.25; 22:00-06:00=0.4; wed 12:00-13:00=2"


@pytest.mark.parametrize(
    ("when", "factor"),
    [
        ("2026-11-16T12:00", 1.0),  # Monday
        ("2026-11-16T22:00", 0.4),
        ("2026-11-17T05:59", 0.4),
        ("2026-11-17T06:00", 1.0),
        ("2026-11-18T12:30", 2.0),
        ("2026-11-20T19:59", 1.0),  # Friday
        ("2026-11-20T20:00", 0.25),
        ("2026-11-23T05:00", 0.25),  # the night that began on Sunday
        ("2026-11-23T23:00", 0.4),
    ],
)
def test_the_first_window_that_matches_counts(when: str, factor: float) -> None:
    assert read_price_windows(WINDOWS).factor(at(when)) == factor


def test_an_hour_has_the_mean_of_its_factors() -> None:
    windows = read_price_windows("12:30-14:00=0.5")
    assert windows.hours(at("2026-11-16T11:00", "UTC"), 4) == {
        at("2026-11-16T12:00", "UTC"): 0.75,
        at("2026-11-16T13:00", "UTC"): 0.5,
    }
    assert read_price_windows("").hours(0, 100) == {}


@pytest.mark.parametrize(
    "text",
    ["22-06=1", "22:00-06:00", "noday 22:00-06:00=1", "25:00-06:00=1", "22:61-23:00=1", "timezone=Mars/X", "1:0=1"],
)
def test_windows_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="price windows"):
        read_price_windows(text)
