"""Dates as start, end and time of a schedule; previews from an instant in the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.clock import instant, millis
from mainspring.domain.schedule.schedule import ScheduleError, ScheduleSpec, resolve, resolve_all
from mainspring.domain.schedule.spec import read_end
from mainspring.domain.schedule.zone import load_zone

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def resolved(**fields: str | None) -> dict[str, datetime | None]:
    found = resolve(ScheduleSpec(timezone="Europe/Berlin", **fields), now_ms=millis(NOW))  # type: ignore[arg-type]
    names = ("at_ms", "start_ms", "end_ms")
    return {name: None if (ms := getattr(found, name)) is None else instant(ms) for name in names}


def test_a_date_as_start_is_its_midnight_in_the_zone() -> None:
    start = resolved(cron="0 2 * * *", start_at="2026-12-01")["start_ms"]
    assert start == datetime(2026, 11, 30, 23, tzinfo=UTC)


def test_a_date_as_end_includes_the_whole_day_in_the_zone() -> None:
    end = resolved(cron="0 2 * * *", end_at="2026-12-01")["end_ms"]
    assert end == datetime(2026, 12, 1, 22, 59, 59, 999_000, tzinfo=UTC)
    timestamp = resolved(cron="0 2 * * *", end_at="2026-12-01T00:00")["end_ms"]
    assert timestamp == datetime(2026, 11, 30, 23, tzinfo=UTC)


def test_a_window_of_one_date_is_that_day() -> None:
    found = resolved(cron="0 2 * * *", start_at="2026-12-01", end_at="2026-12-01")
    assert found["start_ms"] is not None
    assert found["end_ms"] is not None
    assert found["end_ms"] - found["start_ms"] == DAY - timedelta(milliseconds=1)


def test_a_date_as_time_of_a_single_fire_is_its_midnight() -> None:
    assert resolved(at="2026-12-01")["at_ms"] == datetime(2026, 11, 30, 23, tzinfo=UTC)


def test_a_day_ends_where_the_next_one_begins_even_without_a_midnight() -> None:
    # In Beirut the clocks went from midnight to one on 2027-03-28.
    zone = load_zone("Asia/Beirut")
    assert instant(read_end("2027-03-27", zone, "/end_at")) == datetime(2027, 3, 27, 21, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-12", "2026-13-01", "2026-02-30", "12-01-2026", "2026-12-01x", "tomorrow"])
@pytest.mark.parametrize("field", ["start_at", "end_at", "at"])
def test_other_texts_are_refused_with_a_hint(field: str, text: str) -> None:
    kind = {} if field == "at" else {"cron": "0 2 * * *"}
    with pytest.raises(ScheduleError) as refused:
        resolved(**kind, **{field: text})
    assert refused.value.pointer == f"/{field}"
    assert refused.value.hint


ENDED = [
    ScheduleSpec(cron="0 2 * * *", end_at="2026-10-01"),
    ScheduleSpec(rrule="FREQ=DAILY;UNTIL=20261001T000000Z", dtstart="2026-01-01T00:00:00Z"),
    ScheduleSpec(rrule="FREQ=DAILY;COUNT=10", dtstart="2026-01-01T00:00:00Z"),
    ScheduleSpec(at="2026-10-01T00:00:00Z"),
]


@pytest.mark.parametrize("spec", ENDED)
def test_a_schedule_that_has_ended_is_refused_unless_it_is_looked_at_from_before_its_end(spec: ScheduleSpec) -> None:
    early = millis(datetime(2026, 1, 1, tzinfo=UTC) - DAY)
    for schedule in (spec, [spec, spec]):
        with pytest.raises(ScheduleError):
            resolve_all(schedule, now_ms=millis(NOW))
        with pytest.raises(ScheduleError):
            resolve_all(schedule, now_ms=millis(NOW), since_ms=millis(NOW + DAY))
        resolve_all(schedule, now_ms=millis(NOW), since_ms=early)


def test_looking_from_another_instant_does_not_move_an_interval() -> None:
    spec = ScheduleSpec(every="7m")
    keys = {resolve(spec, now_ms=millis(NOW), since_ms=since).key for since in (None, 0, millis(NOW + 9 * DAY))}
    assert len(keys) == 1
