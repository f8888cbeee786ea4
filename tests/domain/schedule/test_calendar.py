from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.domain.schedule.blackouts import Blackouts, Scope
from mainspring.domain.schedule.calendar import (
    Blackout,
    Calendar,
    CalendarError,
    RecurringBlackout,
    Roll,
    blackout_until,
    check_calendar,
    in_blackout,
    on_calendar,
    rule_text,
)
from mainspring.domain.schedule.jitter import jitter_ms
from mainspring.domain.schedule.schedule import (
    Schedule,
    ScheduleSpec,
    ScheduleSpecs,
    compile_key,
    resolve,
    resolve_all,
    with_calendar,
)
from mainspring.domain.schedule.zone import load_zone

UTC_ZONE, BERLIN = load_zone("UTC"), load_zone("Europe/Berlin")
WEEKENDS = Calendar("weekends", rules=("* * SAT,SUN",))
HOLIDAYS = Calendar("holidays", dates=frozenset({date(2026, 12, 25), date(2026, 12, 28)}), rules=("* * SAT,SUN",))


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def schedule(cron: str, timezone: str = "UTC") -> Schedule:
    key = resolve(ScheduleSpec(cron=cron, timezone=timezone), now_ms=0).key
    assert key is not None
    return compile_key(key)


def texts(fires: list[int]) -> list[str]:
    return [datetime.fromtimestamp(fire / 1000, UTC).strftime("%m-%dT%H:%M") for fire in fires]


def all_ways(found: Schedule, start: int, end: int) -> list[int]:
    fires = found.between(start, end, 10_000)
    assert all(before < after for before, after in pairwise(fires))
    assert found.count_between(start, end) == len(fires)
    backwards, fire = [], found.prev_before(end + 1)
    while fire is not None and fire > start:
        backwards.append(fire)
        fire = found.prev_before(fire)
    assert backwards[::-1] == fires
    return fires


@pytest.mark.parametrize(
    ("calendar", "cron", "roll", "expected"),
    [
        (HOLIDAYS, "0 9 * * *", None, ["12-24T09:00", "12-29T09:00", "12-30T09:00"]),
        (HOLIDAYS, "0 9 26 * *", None, []),
        (HOLIDAYS, "0 9 26 * *", "next", ["12-29T09:00"]),
        (HOLIDAYS, "0 9 26 * *", "previous", ["12-24T09:00"]),
        (HOLIDAYS, "0 9 * * *", "next", ["12-24T09:00", "12-29T09:00", "12-30T09:00"]),  # they meet and are one
        (HOLIDAYS, "0 8 25 * *", "next", ["12-29T08:00"]),
        (
            Calendar("paydays", dates=frozenset({date(2026, 12, 28)}), mode="include"),
            "0 9,17 * * *",
            None,
            ["12-28T09:00", "12-28T17:00"],
        ),
        (Calendar("midmonth", rules=("15W * *", "L * *"), mode="include"), "0 9 * * *", None, []),
    ],
)
def test_closed_days(calendar: Calendar, cron: str, roll: Roll | None, expected: list[str]):
    found = on_calendar(schedule(cron), calendar, UTC_ZONE, roll)
    assert texts(all_ways(found, ms("2026-12-24T00:00"), ms("2026-12-30T12:00"))) == expected


def test_times_of_several_closed_days_are_put_in_order():
    cron = schedule("0 10 26 12 *"), schedule("0 9 27 12 *")
    for base, expected in zip(cron, ("12-29T10:00", "12-29T09:00"), strict=True):
        assert texts(on_calendar(base, HOLIDAYS, UTC_ZONE, "next").between(ms("2026-12-20"), ms("2027-01-01"), 5)) == [
            expected
        ]
    mixed = on_calendar(schedule("0 9-10 * 12 SAT,SUN"), HOLIDAYS, UTC_ZONE, "next")
    assert texts(all_ways(mixed, ms("2026-12-20"), ms("2027-01-01"))) == [
        "12-21T09:00",
        "12-21T10:00",
        "12-29T09:00",
        "12-29T10:00",
    ]


def test_days_are_those_of_the_zone():
    # 23:30 UTC on Friday is Saturday in Berlin.
    found = on_calendar(schedule("30 23 * * *"), WEEKENDS, BERLIN)
    assert texts(found.between(ms("2026-11-19T12:00"), ms("2026-11-23T00:00"), 9)) == ["11-19T23:30", "11-22T23:30"]


def test_a_moved_fire_keeps_its_wall_time_over_a_clock_change():
    found = on_calendar(schedule("30 2 * * SAT", "Europe/Berlin"), WEEKENDS, BERLIN, "next")
    assert texts(found.between(ms("2027-03-26"), ms("2027-04-01"), 5)) == ["03-29T00:30"]  # 02:30 in summer time
    sundays = Calendar("no saturdays", rules=("* * SAT",))
    in_gap = on_calendar(schedule("30 2 * * SAT", "Europe/Berlin"), sundays, BERLIN, "next")
    assert texts(in_gap.between(ms("2027-03-26"), ms("2027-04-01"), 5)) == ["03-28T01:00"]


def test_a_calendar_without_an_open_day_fires_nothing():
    closed = Calendar("closed", rules=("* * *",))
    for roll in (None, "next", "previous"):
        found = on_calendar(schedule("0 9 * * *"), closed, UTC_ZONE, roll)
        assert found.between(ms("2026-12-01"), ms("2027-01-01"), 5) == []


def test_nothing_is_moved_further_than_a_month():
    rare = Calendar("rare", dates=frozenset({date(2026, 12, 15), date(2028, 1, 1)}), mode="include")
    on, back = (on_calendar(schedule("0 9 * * *"), rare, UTC_ZONE, roll) for roll in ("next", "previous"))
    once = schedule("0 9 14 11 *"), schedule("0 9 15 11 *"), schedule("0 9 14 1 *"), schedule("0 9 15 1 *")
    rolls: list[Roll] = ["next", "next", "previous", "previous"]
    found = [
        texts(all_ways(on_calendar(base, rare, UTC_ZONE, roll), ms("2026-06-01"), ms("2027-06-01")))
        for base, roll in zip(once, rolls, strict=True)
    ]
    assert found == [[], ["12-15T09:00"], ["12-15T09:00"], []]
    for both in (on, back):
        assert texts(all_ways(both, ms("2026-01-01"), ms("2029-01-01"))) == ["12-15T09:00", "01-01T09:00"]


@settings(max_examples=60, deadline=None)
@given(
    closed=st.frozensets(st.integers(0, 20), max_size=14),
    cron=st.sampled_from(["0 9 * * *", "0 0,12 */2 * *", "30 2 * * 1-5", "0 */7 * * *"]),
    roll=st.sampled_from(["next", "previous"]),
)
def test_rolling_moves_each_fire_to_the_nearest_open_day_in_its_direction(closed, cron, roll):
    first = date(2026, 12, 1)
    calendar = Calendar("some", dates=frozenset(first + timedelta(days=n) for n in closed))
    base, step = schedule(cron), timedelta(days=1 if roll == "next" else -1)
    expected = set()
    for fire in base.between(ms("2026-11-01"), ms("2027-01-31"), 10_000):
        when = datetime.fromtimestamp(fire / 1000, UTC)
        while when.date() in calendar.dates:
            when += step
        expected.add(round(when.timestamp() * 1000))
    start, end = ms("2026-11-20"), ms("2027-01-05")
    found = all_ways(on_calendar(base, calendar, UTC_ZONE, roll), start, end)
    assert found == sorted(fire for fire in expected if start < fire <= end)


def test_words():
    found = on_calendar(schedule("0 9 * * *"), HOLIDAYS, UTC_ZONE, "next")
    assert found.describe() == "at 09:00 every day, not on days of the calendar holidays, moved to the next open day"


@pytest.mark.parametrize(
    ("rule", "says"), [("25 12", "three fields"), ("32 * *", "day of month field"), ("* * FRIDAY", "written in full")]
)
def test_wrong_rules_are_refused(rule: str, says: str):
    with pytest.raises(CalendarError, match=says) as caught:
        check_calendar(Calendar("wrong", rules=("* * MON", rule)))
    assert caught.value.hint


def test_blackouts():
    nightly = RecurringBlackout(schedule("0 2 * * *"), 3_600_000)
    once = Blackout(ms("2026-12-01T03:00"), ms("2026-12-01T05:00"))
    windows: list[Blackout | RecurringBlackout] = [nightly, once]
    for text, inside in (
        ("2026-12-01T01:59:59", False),
        ("2026-12-01T02:00:00", True),
        ("2026-12-01T03:00:00", True),
        ("2026-12-01T04:59:59", True),
        ("2026-12-01T05:00:00", False),
        ("2026-12-02T02:59:59", True),
        ("2026-12-02T03:00:00", False),
    ):
        assert in_blackout(windows, ms(text)) is inside, text
    assert blackout_until(windows, ms("2026-12-01T02:30")) == ms("2026-12-01T05:00")
    assert blackout_until(windows, ms("2026-12-02T02:30")) == ms("2026-12-02T03:00")
    assert blackout_until(windows, ms("2026-12-02T12:00")) is None
    assert not in_blackout([], 0)


@given(number=st.integers(0, 10**9), jitter=st.integers(0, 10**7), gap=st.one_of(st.none(), st.integers(1, 10**7)))
def test_jitter_is_stable_and_ends_before_the_next_fire(number: int, jitter: int, gap: int | None):
    execution_id = uuid5(UUID(int=0), str(number))
    delay = jitter_ms(execution_id, jitter, gap)
    assert delay == jitter_ms(execution_id, jitter, gap)
    assert 0 <= delay <= jitter
    assert gap is None or delay < gap


def test_jitter_spreads():
    delays = [jitter_ms(uuid5(UUID(int=0), str(n)), 999, None) for n in range(1000)]
    assert len(set(delays)) > 600
    assert 450 < sum(delays) / 1000 < 550


def test_windows_that_take_turns_for_ever_have_an_end_to_look_again():
    half, other = (RecurringBlackout(schedule(cron), 30 * 60_000) for cron in ("0 * * * *", "30 * * * *"))
    until = blackout_until([half, other], ms("2026-01-01T00:10"))
    assert until is not None and until > ms("2026-01-10")


@pytest.mark.parametrize(
    "spellings", [("25 12 *", " 25  DEC * "), ("* * SAT,SUN", "* * 0,6"), ("1-3 1 *", "1,2,3 JAN ?")]
)
def test_a_rule_has_one_normal_form(spellings: tuple[str, str]):
    assert len({rule_text(rule) for rule in spellings}) == 1


JOB = UUID(int=7)


@pytest.mark.parametrize(
    ("scope", "at", "until"),
    [
        (Scope(1, "short"), 10, None),
        (Scope(1, "short"), 25, 30),
        (Scope(1, "long"), 10, 30),
        (Scope(1, "long", JOB), 10, 40),
        (Scope(1, "short", JOB), 10, None),
        (Scope(1, "short", JOB), 35, 40),
        (Scope(2, "long", JOB), 25, None),
    ],
)
def test_windows_of_tenant_queue_and_job_join(scope: Scope, at: int, until: int | None):
    known = Blackouts(
        [(Scope(1, "long"), Blackout(5, 20)), (Scope(1), Blackout(20, 30)), (Scope(1, None, JOB), Blackout(30, 40))]
    )
    assert known.until(scope, at) == until
    held = [held for held in known.holding(at) if held.scope.covers(scope)]
    narrowest = max(held, key=lambda held: (held.scope.job_id is not None, held.scope.queue is not None), default=None)
    assert (None if narrowest is None else narrowest.until_ms) == until


# Calendars in keys ------------------------------------------------------------------------------------

CALENDARS = {"holidays": HOLIDAYS, "weekends": WEEKENDS}


def key_of(specs: ScheduleSpecs) -> str:
    key = resolve_all(specs, now_ms=ms("2026-12-20"), calendars=CALENDARS).key
    assert key is not None
    return key


@pytest.mark.parametrize("roll", [None, "next", "previous"])
@pytest.mark.parametrize("cron", ["0 9 * * *", "30 2 * * MON", "0 0 1,15 * *"])
def test_a_key_holds_its_calendar(cron: str, roll: Roll | None):
    found = compile_key(key_of(ScheduleSpec(cron=cron, timezone="Europe/Berlin", calendar="holidays", roll=roll)))
    expected = on_calendar(schedule(cron, "Europe/Berlin"), HOLIDAYS, BERLIN, roll)
    start, end = ms("2026-12-20"), ms("2027-02-20")
    assert found.between(start, end, 100) == expected.between(start, end, 100)


def test_the_same_days_give_the_same_key():
    again = Calendar("holidays", dates=frozenset(HOLIDAYS.dates), rules=("* * 6,0", " * * SUN,SAT"))
    spec = ScheduleSpec(every="1h", calendar="holidays")
    assert (
        resolve_all(spec, now_ms=0, calendars={"holidays": again}).key
        == resolve_all(spec, now_ms=0, calendars=CALENDARS).key
    )
    key = key_of(spec)
    assert with_calendar(key, again, 0) == key
    assert with_calendar(key, Calendar("weekends"), 0) == key, "another calendar's edit is none of its business"


def test_an_edit_keeps_everything_but_the_days():
    specs = [
        ScheduleSpec(every="7h", calendar="holidays"),
        ScheduleSpec(cron="0 9 * * *", calendar="weekends", end_at="2027-06-01T00:00:00Z"),
        ScheduleSpec(at="2027-01-01T00:00:00Z"),
    ]
    changed = Calendar("holidays", rules=("* * MON",))
    now = ms("2026-12-21")
    by_edit = with_calendar(key_of(specs), changed, now)
    anew = resolve_all(specs, now_ms=ms("2026-12-20"), calendars={**CALENDARS, "holidays": changed}).key
    assert by_edit == anew


@pytest.mark.parametrize("fires", [1, 3, 40])
def test_counted_fires_end_with_the_last(fires: int):
    spec = ScheduleSpec(cron="0 9 * * *", calendar="holidays", max_fires=fires)
    found = compile_key(key_of(spec)).between(ms("2026-12-20"), ms("2030-01-01"), 1000)
    free = compile_key(key_of(ScheduleSpec(cron="0 9 * * *", calendar="holidays")))
    assert found == free.between(ms("2026-12-20"), ms("2030-01-01"), fires)


@given(left=st.integers(1, 30), days=st.integers(0, 40), closed=st.frozensets(st.integers(1, 60), max_size=20))
@settings(max_examples=50, deadline=None)
def test_an_edit_leaves_as_many_counted_fires_as_there_were(left: int, days: int, closed: frozenset[int]):
    key = key_of(ScheduleSpec(cron="0 9 * * *", calendar="weekends", max_fires=left))
    now = ms("2026-12-20") + days * 86_400_000
    changed = Calendar("weekends", dates=frozenset(date(2026, 12, 20) + timedelta(days=n) for n in closed))
    before, after = compile_key(key), compile_key(with_calendar(key, changed, now))
    end = ms("2028-01-01")
    assert after.count_between(now, end) == before.count_between(now, end)
