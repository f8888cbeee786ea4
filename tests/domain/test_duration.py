import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.duration import calendar_days, calendar_months, format_duration, parse_duration, spell_duration


@pytest.mark.requirement(3)
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (5, 5),
        (0.5, 0.5),
        ("5", 5),
        ("1.5", 1.5),
        ("10m", 600),
        (" 1H30M ", 5400),
        ("500ms", 0.5),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1m500ms", 60.5),
        ("PT3H", 10_800),
        ("P1DT2H", 93_600),
        ("pt0.5s", 0.5),
        ("P2W", 1_209_600),
        ("0", 0),
    ],
)
def test_parse(text: str | int | float, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write seconds"),
        ("ten minutes", "write seconds"),
        ("10 m", "write seconds"),
        ("30m1h", "from large to small"),
        ("-5", "write seconds"),
        (-5, "0 or more"),
        (math.nan, "finite"),
        (math.inf, "finite"),
        (10**400, "finite"),
        (True, "not a duration"),
        ("٣m", "write seconds"),
        ("P", "PT3H"),
        ("PT", "PT3H"),
        ("P1DT", "PT3H"),
        ("P3H", "PT3H"),
        ("P1M", "differ in length"),
        ("P1Y2D", "differ in length"),
        ("2 months", "differ in length"),
        ("1y", "differ in length"),
    ],
)
def test_refused_with_a_reason(text: str | int | float, says: str):
    with pytest.raises(ValueError, match=says):
        parse_duration(text)


def test_a_number_read_before_does_not_make_true_a_duration():
    assert parse_duration(1) == 1.0
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(True)


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_formatting_is_read_back(milliseconds: int):
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


def test_format():
    assert [format_duration(s) for s in (600, 5400, 0.5, 0, 90_061)] == [
        "10m",
        "1h30m",
        "500ms",
        "0s",
        "1d1h1m1s",
    ]
    assert [spell_duration(s) for s in (5, 60, 5400)] == ["5 seconds", "minute", "1 hour 30 minutes"]


def test_only_days_and_weeks_are_calendar_units():
    assert [calendar_days(text) for text in ("1d", "P1D", "1w2d", "P2W")] == [1, 1, 9, 14]
    assert [calendar_days(text) for text in ("24h", "PT24H", "1d1h", 86_400, "P")] == [None] * 5


def test_only_months_and_years_are_months():
    found = [calendar_months(text) for text in ("1mo", "P1M", "2 months", "1y", "P1Y6M", "1y 6mo", "3MON", "0mo")]
    assert found == [1, 1, 2, 12, 18, 18, 3, 0]
    assert [calendar_months(text) for text in ("1m", "PT1M", "P1M2D", "1mo2d", 5, "", "P", "mo")] == [None] * 8
