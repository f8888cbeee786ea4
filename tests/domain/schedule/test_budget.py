"""The cost of schedules: counted in steps and in questions, with CPU time only as a generous last bound."""

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.duration import parse_duration
from mainspring.domain.schedule.blackouts import Blackouts, Scope
from mainspring.domain.schedule.budget import FIRE_STEPS, REQUEST_STEPS, SAVE_STEPS, TooCostly, spend, steps
from mainspring.domain.schedule.calendar import RecurringBlackout, on_calendar
from mainspring.domain.schedule.recurrence import Interval, Schedule, count_at_least
from mainspring.domain.schedule.schedule import (
    ScheduleError,
    ScheduleSpec,
    ScheduleSpecs,
    compile_key,
    describe_spec,
    resolve,
    resolve_all,
    with_calendar,
)
from mainspring.domain.schedule.zone import Zone, load_zone
from tests.support.poison_schedules import ACCEPTED, CALENDARS, ODD_DAYS, RARE, REFUSED, WEEKENDS

NOW = round(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)  # a Monday: Saturday and Sunday roll onto it
DAY_MS = 86_400_000
CPU_S = 2.0
"""Ten times what the budget of a request takes on a slow machine."""


def read(given: Any) -> ScheduleSpecs:
    specs: ScheduleSpecs = msgspec.convert(given, ScheduleSpecs)
    return specs


class Asked(Schedule):
    """A schedule that counts how often it is asked."""

    def __init__(self, base: Schedule) -> None:
        self.base, self.questions = base, 0

    def next_after(self, ms: int) -> int | None:
        self.questions += 1
        return self.base.next_after(ms)

    def prev_before(self, ms: int) -> int | None:
        self.questions += 1
        return self.base.prev_before(ms)

    def describe(self) -> str:
        return self.base.describe()


@pytest.mark.parametrize(("calendar", "most"), [(WEEKENDS, 10), (RARE, 80)])
def test_a_rolled_fire_asks_each_day_of_its_group_once(calendar, most):
    base = Asked(Interval(1000, 0))
    rolled = on_calendar(base, calendar, load_zone("Europe/Berlin"), "next")
    at = NOW
    for _ in range(50):
        base.questions = 0
        following = rolled.next_after(at)
        assert following is not None
        assert base.questions <= most
        base.questions = 0
        assert rolled.prev_before(following + 1) == following
        assert base.questions <= most
        at = following + 1_700_000


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_schedules_stay_cheap(name: str):
    started = time.process_time()
    key = resolve_all(read(ACCEPTED[name]), now_ms=NOW, calendars=CALENDARS).key
    assert key is not None
    schedule = compile_key(key)
    at: int | None = NOW
    for _ in range(20):
        with steps(SAVE_STEPS):
            assert at is not None
            at = schedule.next_after(at)
    with steps(REQUEST_STEPS):
        assert len(schedule.between(NOW, NOW + 400 * 366 * DAY_MS, 50)) >= 14
    with steps(FIRE_STEPS):
        schedule.prev_before(NOW)
    assert time.process_time() - started < CPU_S


@pytest.mark.parametrize("name", REFUSED)
def test_refused_schedules_are_refused_within_the_budget(name: str):
    started = time.process_time()
    with steps(10 * REQUEST_STEPS) as budget, pytest.raises(ScheduleError) as caught:
        resolve_all(read(REFUSED[name]), now_ms=NOW, calendars=CALENDARS)
    assert caught.value.code in ("never_fires", "schedule_too_costly", "schedule_too_large")
    assert caught.value.hint
    assert budget.spent <= REQUEST_STEPS + 500  # the last step may be a long one
    assert time.process_time() - started < CPU_S


def test_whole_days_without_fires_are_passed_over_at_once():
    spec = ScheduleSpec(rrule="FREQ=SECONDLY", exdates=tuple(f"2026-12-{day:02}" for day in range(1, 29)))
    started = time.process_time()
    key = resolve(spec, now_ms=NOW).key
    assert key is not None
    following = compile_key(key).next_after(NOW + DAY_MS // 2 - 1000)
    assert following == NOW + 28 * DAY_MS + DAY_MS // 2
    assert time.process_time() - started < CPU_S


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ([{"cron": "@daily"}] * 51, ""),
        ([{"rrule": "FREQ=DAILY", "exdates": ["2027-01-01"] * 400}] * 3, ""),
        ({"cron": "0 " + "1," * 600 + "1 * * *"}, "/cron"),
        ({"rrule": "FREQ=DAILY;BYHOUR=" + "1," * 3000 + "1"}, "/rrule"),
        ({"every": "1" * 65 + "s"}, "/every"),
        ({"every": 5, "jitter": "0" * 65}, "/jitter"),
        ({"cron": "@daily", "timezone": "Europe/" + "B" * 1000}, "/timezone"),
        ({"at": "2027-01-01T00:00:00" + "0" * 100}, "/at"),
        ({"cron": "@daily", "start_at": "2" * 65}, "/start_at"),
        ({"cron": "@daily", "end_at": "2" * 65}, "/end_at"),
        ({"rrule": "FREQ=DAILY", "dtstart": "2" * 65}, "/dtstart"),
        ({"rrule": "FREQ=DAILY", "exdates": ["2027-01-01"] * 501}, "/exdates"),
        ({"rrule": "FREQ=DAILY", "exdates": ["2" * 65]}, "/exdates/0"),
        ({"cron": "@daily", "exclude": ["2027-01-01"] * 51}, "/exclude"),
        ({"cron": "@daily", "exclude": ["2027-01-01", "1," * 600 + "1 * * * *"]}, "/exclude/1"),
        ({"cron": "@daily", "calendar": "x" * 129}, "/calendar"),
    ],
)
def test_sizes_are_checked_before_anything_is_parsed(given, pointer: str):
    with pytest.raises(ScheduleError, match="at most") as caught:
        resolve_all(read(given), now_ms=NOW)
    assert caught.value.code == "schedule_too_large"
    assert caught.value.pointer == pointer
    assert caught.value.hint


def test_long_lists_are_described_in_part():
    members = [ScheduleSpec(cron=f"{n} 9 * * *") for n in range(50)]
    assert describe_spec(members).endswith("at 09:04 every day; and 45 more")
    key = resolve_all(list(members), now_ms=NOW).key
    assert key is not None
    assert compile_key(key).describe().endswith("; and 45 more")
    masks = ScheduleSpec(cron="0 9 * * *", exclude=tuple(f"{n} 10 * * *" for n in range(50)))
    assert describe_spec(masks).endswith(" and 45 more")


def test_long_durations_are_refused():
    for text in ("1" * 10_000, "1" * 5_000 + "d", "p" + "1" * 5_000 + "d", "1mo" * 3_000):
        with pytest.raises(ValueError, match="more than 100 characters"):
            parse_duration(text)


def test_a_budget_ends_and_an_inner_one_charges_the_outer():
    with steps(10) as outer:
        with steps(4), pytest.raises(TooCostly, match="more than 4 steps"):
            spend(5)
        assert outer.left == 5
        with steps(100) as inner:
            assert inner.left == 5
        spend(5)
        with pytest.raises(TooCostly, match="more than 10 steps"):
            spend()
    spend(1000)  # without a budget nothing is counted


def test_a_walking_schedule_has_a_budget_of_its_own():
    key = resolve(ScheduleSpec(cron="0 9 */2 * *", calendar="weekends"), now_ms=NOW, calendars=CALENDARS).key
    assert key is not None
    costly = compile_key(with_calendar(key, msgspec.structs.replace(ODD_DAYS, name="weekends"), NOW))
    for ask in (costly.next_after, costly.prev_before):
        with pytest.raises(TooCostly):
            ask(NOW)


def test_counts_of_costly_schedules_are_lower_bounds():
    key = resolve(ScheduleSpec(every="1s", calendar="weekends", roll="next"), now_ms=NOW, calendars=CALENDARS).key
    assert key is not None
    schedule = compile_key(key)
    assert count_at_least(schedule, NOW, NOW + 60_000, FIRE_STEPS) == 60
    assert 100 < count_at_least(schedule, NOW, NOW + DAY_MS, FIRE_STEPS) < 43_200


def test_years_far_away_are_no_error():
    for spec in (ScheduleSpec(every="50y"), ScheduleSpec(cron="@yearly"), ScheduleSpec(rrule="FREQ=YEARLY")):
        key = resolve(spec, now_ms=NOW).key
        assert key is not None
        last = round(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000)
        schedule = compile_key(key)
        assert schedule.between(last - 60 * 366 * DAY_MS, last, 500)[-1] <= last
        following = schedule.next_after(last)
        assert following is None or following > last


def test_zones_keep_a_bounded_number_of_years():
    zone = Zone("Europe/Berlin")
    for year in range(1970, 2970, 4):
        zone.wall_at(round(datetime(year, 7, 1, tzinfo=UTC).timestamp()))
    assert len(zone._blocks) <= 64
    assert zone.wall_at(round(datetime(2900, 7, 1, tzinfo=UTC).timestamp())) % 86_400 == 7200, "summer time"


def test_blackouts_are_asked_only_when_one_begins_or_ends():
    windows = [(Scope(1, f"queue-{n}"), Asked(Interval(DAY_MS, n * 60_000))) for n in range(40)]
    windows += [(Scope(1, job_id=None), Asked(Interval(DAY_MS, 0)))]
    blackouts = Blackouts((scope, RecurringBlackout(begins, 30_000)) for scope, begins in windows)
    noon = NOW - NOW % DAY_MS + DAY_MS // 2
    blackouts.holding(noon)
    for _, begins in windows:
        begins.questions = 0
    for second in range(3600):
        assert blackouts.holding(noon + second * 1000) == []
    assert sum(begins.questions for _, begins in windows) == 0


def test_many_blackouts_in_turn_are_joined_within_bounds():
    hours = [Asked(Interval(DAY_MS, n * 3_600_000)) for n in range(24)]
    blackouts = Blackouts((Scope(1), RecurringBlackout(begins, 3_600_000)) for begins in hours)
    held = blackouts.holding(NOW)
    assert held and held[0].until_ms > NOW + DAY_MS
    assert sum(begins.questions for begins in hours) <= 5000
    for begins in hours:
        begins.questions = 0
    blackouts.holding(NOW + 3_600_000)
    assert sum(begins.questions for begins in hours) == 0, "still the same blackout"


FREQUENCIES = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]
numbers = {
    "INTERVAL": st.sampled_from([1, 2, 7, 59, 61, 3599, 86_399, 172_801, 9_999_999]).map(str),
    "COUNT": st.sampled_from([1, 100, 100_000]).map(str),
    "BYMONTH": st.integers(1, 12).map(str),
    "BYMONTHDAY": st.integers(-31, 31).filter(bool).map(str),
    "BYDAY": st.sampled_from(["MO", "SA,SU", "MO,TU,WE,TH,FR"]),
    "BYHOUR": st.integers(0, 23).map(str),
    "BYMINUTE": st.sampled_from(["0", "7", ",".join(map(str, range(60)))]),
    "BYSECOND": st.sampled_from(["0", "11", ",".join(map(str, range(60)))]),
    "BYSETPOS": st.sampled_from(["1", "-1", "366", ",".join(map(str, range(1, 367)))]),
}


@st.composite
def nasty(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["every", "cron", "rrule"]))
    spec: dict[str, Any] = {"timezone": draw(st.sampled_from(["UTC", "Europe/Berlin", "Africa/Casablanca"]))}
    if kind == "every":
        spec["every"] = draw(st.sampled_from(["1s", "7s", "61s", "1d", "1mo", "50y"]))
    elif kind == "cron":
        times = draw(st.sampled_from(["* * *", "0 0 *", "*/7 */11 *", "0 0 0"]))
        spec["cron"] = times + " " + draw(st.sampled_from(["* * *", "29 2 *", "*/2 * *", "31 * MON", "L * *"]))
    else:
        chosen = draw(st.lists(st.sampled_from(sorted(numbers)), max_size=5, unique=True))
        parts = [f"{name}={draw(numbers[name])}" for name in chosen]
        spec["rrule"] = ";".join([f"FREQ={draw(st.sampled_from(FREQUENCIES))}", *parts])
        if draw(st.booleans()):
            spec["dtstart"] = draw(st.sampled_from(["1970-01-01", "2026-11-30T00:00:01", "2999-12-31"]))
        if draw(st.booleans()):
            spec["exdates"] = [f"2026-12-{day:02}" for day in range(1, 32)]
    if draw(st.booleans()):
        masks = ["* * * * *", "*/2 * * * *", "* 9 * * *", "0-58 * * * * *", "* * */2 * *", "* * * * SAT,SUN"]
        spec["exclude"] = draw(st.lists(st.sampled_from(masks), min_size=1, max_size=3))
    if draw(st.booleans()):
        spec["calendar"] = draw(st.sampled_from(sorted(CALENDARS)))
        spec["roll"] = draw(st.sampled_from([None, "next", "previous"]))
    if draw(st.booleans()):
        spec["max_fires"] = draw(st.sampled_from([1, 100, 10_000]))
    return {name: value for name, value in spec.items() if value is not None}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given=st.one_of(nasty(), st.lists(nasty(), min_size=1, max_size=6)))
def test_no_combination_is_costly(given):
    """The search for superlinear cost: whatever is written, the answer comes within the budget, and in bounded time."""
    started = time.process_time()
    try:
        key = resolve_all(read(given), now_ms=NOW, calendars=CALENDARS).key
    except ScheduleError:
        assert time.process_time() - started < CPU_S
        return
    assert key is not None
    schedule = compile_key(key)
    for question in (
        lambda: schedule.between(NOW, NOW + 200 * 366 * DAY_MS, 50),
        lambda: schedule.prev_before(NOW),
        lambda: schedule.count_between(NOW, NOW + 400 * DAY_MS),
    ):
        try:
            with steps(REQUEST_STEPS):
                question()
        except TooCostly:
            pass
    assert time.process_time() - started < 3 * CPU_S
