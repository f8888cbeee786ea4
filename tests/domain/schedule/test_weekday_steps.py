"""Steps of seven in the day of week: the first Sunday of a month, as crontabs write it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mainspring.clock import instant, millis
from mainspring.domain.schedule.schedule import ScheduleError, ScheduleSpec, compile_key, describe_spec, resolve

NOW = millis(datetime(2026, 11, 18, tzinfo=UTC))


def fires(cron: str, count: int = 3) -> list[str]:
    key = resolve(ScheduleSpec(cron=cron), now_ms=NOW).key
    assert key is not None
    return [f"{instant(ms):%Y-%m-%d %a}" for ms in compile_key(key).between(NOW, NOW + 200 * 86_400_000, count)]


@pytest.mark.parametrize("weekday", ["*/7", "0-7/7", "0", "7", "SUN", "7-7/7"])
def test_a_step_of_seven_is_sunday(weekday: str) -> None:
    assert fires(f"0 9 * * {weekday}") == ["2026-11-22 Sun", "2026-11-29 Sun", "2026-12-06 Sun"]


def test_a_leading_star_needs_both_days_so_it_is_the_first_sunday() -> None:
    assert fires("0 9 1-7 * */7") == ["2026-12-06 Sun", "2027-01-03 Sun", "2027-02-07 Sun"]


def test_a_range_does_not_begin_with_a_star_so_either_day_counts() -> None:
    assert fires("0 9 1-7 * 0-7/7", 4) == ["2026-11-22 Sun", "2026-11-29 Sun", "2026-12-01 Tue", "2026-12-02 Wed"]


def test_it_keeps_its_meaning_in_words_and_in_the_key() -> None:
    assert "Sunday" in describe_spec(ScheduleSpec(cron="0 9 * * */7"))
    keys = {resolve(ScheduleSpec(cron=f"0 9 1-7 * {text}"), now_ms=NOW).key for text in ("*/7", "*/07")}
    assert len(keys) == 1


@pytest.mark.parametrize("cron", ["0 9 * * */8", "0 9 * * 0-7/8", "*/60 * * * *", "0 */24 * * *", "0 0 */31 * *"])
def test_longer_steps_are_refused_with_the_largest_that_is_allowed(cron: str) -> None:
    with pytest.raises(ScheduleError, match="too large") as refused:
        resolve(ScheduleSpec(cron=cron), now_ms=NOW)
    assert refused.value.hint.startswith("a step is 1 to ")
