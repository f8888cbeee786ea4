"""The engine against slower and simpler ways to the same answer."""

import zoneinfo
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedule.cron import parse_cron
from mainspring.domain.schedule.schedule import ScheduleError, ScheduleSpec, resolve
from tests.support.cron_agreement import agrees
from tests.support.cron_expressions import ZONES, aimed_at, compiled, expressions, ms, night, policies
from tests.support.cron_oracle import Oracle, changes

LIVELY = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll"]
bounded = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.requirement(7)
@bounded
@given(
    zone=st.one_of(st.sampled_from(LIVELY), st.sampled_from(ZONES)),
    year=st.integers(1980, 2045),
    policy=policies,
    data=st.data(),
)
def test_agrees_with_walking_every_minute_around_a_change(zone, year, policy, data):
    around = data.draw(st.sampled_from(changes(zone, year) or [datetime(year, 6, 1, tzinfo=UTC)]))
    text = data.draw(st.one_of(aimed_at(around, zone), night, expressions()))
    start, end = (
        around - timedelta(hours=9),
        around + timedelta(hours=9, minutes=data.draw(st.integers(0, 90))),
    )
    oracle = Oracle(text, zone, **policy)
    spec = ScheduleSpec(cron=text, timezone=zone, **policy)
    if not any(oracle.on(date(1970, 1, 1) + timedelta(days=n)) for n in range(50 * 365)):
        with pytest.raises(ScheduleError, match="never fires"):
            resolve(spec, now_ms=0)
        return
    schedule = compiled(spec)
    expected = agrees(oracle, schedule, start, end)
    asked = data.draw(st.integers(ms(start), ms(end) - 1))
    assert schedule.next_after(asked) == next((fire for fire in expected if fire > asked), schedule.next_after(ms(end)))


@bounded
@given(text=expressions(), day_and=st.booleans(), start=st.dates(date(1980, 1, 1), date(2060, 1, 1)))
def test_days_agree_with_walking_every_date(text, day_and, start):
    oracle = Oracle(text, "UTC", gap="skip", overlap_hour="first", day_and=day_and)
    walked = (start + timedelta(days=n) for n in range(1, 1500))
    expected = next((day for day in walked if oracle.on(day)), None)
    cron = parse_cron(text, day_and=day_and)
    midnight = (start - date(1970, 1, 1)).days * 86_400
    days = sum(oracle.on(start + timedelta(days=n)) for n in range(200))
    a_day = len(oracle.seconds) * len(oracle.minutes) * len(oracle.hours)
    assert cron.count_walls(midnight, midnight + 200 * 86_400) == days * a_day
    found = cron.next_wall(midnight + 86_400)
    if expected is None:
        assert found is None or found >= midnight + 1500 * 86_400
    else:
        assert found is not None
        assert date(1970, 1, 1) + timedelta(days=found // 86_400) == expected
        latest = cron.prev_wall(found + 86_400 - found % 86_400 - 1)
        assert latest is not None
        assert latest // 86_400 == found // 86_400


@bounded
@given(
    text=expressions(plain=True),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Asia/Tokyo"]),
    minutes=st.integers(0, 40_000),
)
def test_agrees_with_cronsim_where_no_clock_changes(text, zone, minutes):
    start = datetime(2027, 1, 5, tzinfo=UTC) + timedelta(minutes=minutes)
    before_change = ms(datetime(2027, 3, 10, tzinfo=UTC))
    info = zoneinfo.ZoneInfo(zone)
    try:
        peer = CronSim(text, start.astimezone(info))
    except CronSimError:  # it finds impossible dates too
        with pytest.raises(ScheduleError, match="never fires"):
            resolve(ScheduleSpec(cron=text, timezone=zone), now_ms=ms(start))
        return
    expected = takewhile(lambda fire: fire <= before_change, map(ms, islice(peer, 20)))
    schedule = compiled(ScheduleSpec(cron=text, timezone=zone))
    assert schedule.between(ms(start), before_change, 20) == list(expected)


@bounded
@given(text=expressions(), wall=st.integers(0, 4_000_000_000), day_and=st.booleans())
def test_the_normal_form_means_the_same_and_is_stable(text, wall, day_and):
    cron = parse_cron(text, day_and=day_and)
    again = parse_cron(cron.text, day_and=day_and)
    assert again.text == cron.text
    assert again.fixed == cron.fixed
    assert again.next_wall(wall) == cron.next_wall(wall)
    assert again.prev_wall(wall) == cron.prev_wall(wall)
    assert again.describe() == cron.describe()


@bounded
@given(
    every=st.integers(1, 10_000_000),
    anchor=st.integers(0, 4_000_000_000),
    asked=st.integers(0, 4_000_000_000_000),
)
def test_intervals_count_elapsed_time_from_their_anchor(every, anchor, asked):
    schedule = compiled(ScheduleSpec(every=every), now_ms=anchor * 1000 + 999)
    after, before = schedule.next_after(asked), schedule.prev_before(asked)
    assert after is not None
    assert before is not None
    assert before < asked < after
    assert after - before in (every * 1000, 2 * every * 1000)
    assert (after - anchor * 1000) % (every * 1000) == 0
    assert schedule.next_after(after - 1) == after
    assert schedule.prev_before(after + 1) == after


@settings(bounded, max_examples=40)
@given(zone=st.sampled_from(ZONES), year=st.integers(1980, 2040), minute=st.integers(0, 1439), policy=policies)
def test_calendar_days_keep_their_wall_time(zone, year, minute, policy):
    if zone == "UTC":
        return
    around = (changes(zone, year) or [datetime(year, 6, 1, tzinfo=UTC)])[0]
    start, end = around - timedelta(days=1), around + timedelta(days=1)
    policy = {**policy, "day_and": False}
    oracle = Oracle(f"{minute % 60} {minute // 60} * * *", zone, **policy)
    spec = ScheduleSpec(
        every="1d",
        timezone=zone,
        gap=policy["gap"],
        overlap_hour=policy["overlap_hour"],
        start_at=f"1979-07-10T{minute // 60:02}:{minute % 60:02}",
    )
    fires = compiled(spec).between(ms(start), ms(end), 10)
    assert fires == [ms(fire) for fire in oracle.fires(start, end)]
