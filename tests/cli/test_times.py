from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import click
import pytest

from mainspring.cli import arguments
from mainspring.display import times

T0 = datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (3, "3 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1234, "1.2 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min"),
        (60_000, "1 min"),
        (245_000, "4 min 5 s"),
        (3_600_000, "1 h"),
        (12_000_000, "3 h 20 min"),
        (86_400_000, "1 d"),
        (187_200_000, "2 d 4 h"),
    ],
)
def test_spans(ms: int | None, text: str) -> None:
    assert times.span(ms) == text


def test_distances() -> None:
    assert times.distance(T0 + timedelta(seconds=5), T0) == "in 5 s"
    assert times.distance(T0 - timedelta(seconds=200), T0) == "3 min 20 s ago"
    assert times.distance(None, T0) == "–"


def test_both_clocks_are_shown_if_they_differ_anywhere() -> None:
    assert times.both([T0], ZoneInfo("Europe/Berlin")) == [["2026-11-15 13:00:05 CET", "2026-11-15 12:00:05 UTC"]]
    assert times.both([T0], UTC) == [["2026-11-15 12:00:05 UTC"]]
    summer = T0.replace(month=7)
    london = times.both([T0, summer], ZoneInfo("Europe/London"))
    assert [row[0] for row in london] == ["2026-11-15 12:00:05 GMT", "2026-07-15 13:00:05 BST"]


def test_local_is_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert times.local(T0) == "2026-11-15 21:00:05"
        assert times.both([T0]) == [["2026-11-15 21:00:05 JST", "2026-11-15 12:00:05 UTC"]]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "now", lambda: T0)
    assert arguments.when("+10m") == T0 + timedelta(minutes=10)
    assert arguments.when("+1ms") == T0 + timedelta(seconds=1), "never earlier than asked"
    assert arguments.when("2027-03-01T09:00") == datetime(2027, 3, 1, 9, tzinfo=UTC)
    assert arguments.when("2027-03-01T09:00+02:00") == datetime(2027, 3, 1, 7, tzinfo=UTC)
    for wrong in ("", "soon", "+", "+x", "2027-13-01", "+9999999999999999d"):
        with pytest.raises(click.BadParameter, match="is not a time"):
            arguments.when(wrong)


def test_durations_on_the_command_line() -> None:
    assert arguments.seconds("1h30m") == 5400
    assert arguments.seconds(math.inf) == math.inf
    with pytest.raises(click.BadParameter, match="is not a duration"):
        arguments.seconds("soon")
