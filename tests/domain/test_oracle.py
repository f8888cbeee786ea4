"""The engine against slower and simpler ways to the same answer."""

import zoneinfo
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.cron import parse_cron
from mainspring.domain.schedule import Schedule, ScheduleError, ScheduleSpec, compile_key, resolve
from tests.domain.oracle import LIMITS, MONTHS, WEEKDAYS, Oracle, changes

ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
LIVELY = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll"]
bounded = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ms(when: datetime) -> int:
    return round(when.timestamp()) * 1000


def compiled(spec: ScheduleSpec, now_ms: int = 0) -> Schedule:
    key = resolve(spec, now_ms=now_ms).key
    assert key is not None
    return compile_key(key)


@st.composite
def field(draw: st.DrawFn, position: int, *, plain: bool = False) -> str:
    """One field; `plain` leaves out what cronsim does not read."""
    low, high = LIMITS[position]
    value = st.integers(low, high)
    step = st.integers(1, high - low)
    wraps = position in (1, 3, 4) and not plain
    spans = st.tuples(value, value).map(lambda pair: pair if wraps else (min(pair), max(pair)))
    if plain:  # it reads 5-5/2 as 5/2
        spans = spans.filter(lambda pair: pair[0] < pair[1])
    kinds = [
        value.map(str),
        spans.map(lambda span: f"{span[0]}-{span[1]}"),
        st.tuples(spans, step).map(lambda it: f"{it[0][0]}-{it[0][1]}/{it[1]}"),
        step.map(lambda n: f"*/{n}"),
    ]
    if not plain:
        kinds.append(st.tuples(value, step).map(lambda it: f"{it[0]}/{it[1]}"))
        if position in (3, 4):
            kinds.append(st.sampled_from((MONTHS, WEEKDAYS)[position - 3]).map(str.upper))
        if position == 4:
            kinds.append(st.sampled_from(["7", "5-7", "FRI-MON"]))
    if draw(st.booleans()) and position != 0:
        return "*"
    return ",".join(draw(st.lists(st.one_of(kinds), min_size=1, max_size=3)))


def expressions(*, plain: bool = False) -> st.SearchStrategy[str]:
    return st.tuples(*(field(position, plain=plain) for position in range(5))).map(" ".join)


# Fires at night on any day: nearly all of them meet the change of clocks they are put next to.
night = st.tuples(
    st.sampled_from(["30", "0", "15,45", "*/20", "0-59/7", "*", "1", "59"]),
    st.sampled_from(["*", "0-4", "2", "1,2,3", "0", "23", "22-3", "*/2", "1", "3", "*/3,2"]),
    st.sampled_from(["* * *", "*/2 * *", "* * 0,6", "1-15 * 0", "? * SUN-MON"]),
).map(" ".join)
policies = st.fixed_dictionaries(
    {
        "gap": st.sampled_from(["next_valid", "skip"]),
        "overlap_hour": st.sampled_from(["first", "second", "both"]),
        "day_and": st.booleans(),
    }
)


def aimed_at(change: datetime, zone: str) -> st.SearchStrategy[str]:
    """Wall times that the change skips, repeats or just leaves alone."""
    before = (change - timedelta(minutes=1)).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)
    walls = st.integers(-70, 70).map(lambda minutes: before + timedelta(minutes=minutes))
    return walls.map(lambda wall: f"{wall.minute} {wall.hour} * * *")


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
    expected = [ms(fire) for fire in oracle.fires(start, end)]
    spec = ScheduleSpec(cron=text, timezone=zone, **policy)
    if not expected and not any(oracle.on(date(1970, 1, 1) + timedelta(days=n)) for n in range(50 * 365)):
        with pytest.raises(ScheduleError, match="never fires"):
            resolve(spec, now_ms=0)
        return
    schedule = compiled(spec)
    assert schedule.between(ms(start), ms(end), 10_000) == expected
    assert sorted(set(expected)) == expected
    assert [schedule.next_after(fire - 1) for fire in expected] == expected
    backwards = []
    fire = schedule.prev_before(ms(end) + 1)
    while fire is not None and fire > ms(start):
        backwards.append(fire)
        fire = schedule.prev_before(fire)
    assert backwards[::-1] == expected
    asked = data.draw(st.integers(ms(start), ms(end) - 1))
    assert schedule.next_after(asked) == next((fire for fire in expected if fire > asked), schedule.next_after(ms(end)))


@bounded
@given(text=expressions(), day_and=st.booleans(), start=st.dates(date(1980, 1, 1), date(2060, 1, 1)))
def test_days_agree_with_walking_every_date(text, day_and, start):
    oracle = Oracle(text, "UTC", gap="skip", overlap_hour="first", day_and=day_and)
    walked = (start + timedelta(days=n) for n in range(1, 3000))
    expected = next((day for day in walked if oracle.on(day)), None)
    cron = parse_cron(text, day_and=day_and)
    midnight = (start - date(1970, 1, 1)).days * 86_400
    found = cron.next_wall(midnight + 86_400)
    if expected is None:
        assert found is None or found >= midnight + 3000 * 86_400
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
