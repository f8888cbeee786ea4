"""RRULE: wall times as python-dateutil expands them, then our rules for zones and clock changes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dateutil.rrule import rrulestr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.domain.schedule.rrule_text import parse_rule, rule_text
from mainspring.domain.schedule.schedule import (
    Schedule,
    ScheduleError,
    ScheduleSpec,
    compile_key,
    describe_spec,
    notes,
    resolve,
)
from tests.support.cron_expressions import ZONES, policies
from tests.support.cron_oracle import Oracle, changes

BERLIN = "Europe/Berlin"
bounded = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = ms("2025-01-01")


def compiled(now_ms: int = NOW, **spec: Any) -> Schedule:
    key = resolve(ScheduleSpec(**spec), now_ms=now_ms).key
    assert key is not None
    return compile_key(key)


def fires(start: str, end: str, **spec: Any) -> list[str]:
    found = compiled(**spec).between(ms(start), ms(end), 100)
    return [datetime.fromtimestamp(fire / 1000, UTC).strftime("%m-%dT%H:%M") for fire in found]


def numbers(low: int, high: int, *, also_negative: bool = False) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    if also_negative:
        value = st.one_of(value, st.integers(-high, -1))
    return st.lists(value, min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, found)))


WEEKDAYS = st.lists(st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"]), min_size=1, max_size=4, unique=True)


@st.composite
def rules(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]))
    coarse = frequency in ("YEARLY", "MONTHLY")
    optional: dict[str, st.SearchStrategy[str]] = {
        "INTERVAL": st.integers(1, 40).map(str),
        "BYMONTH": numbers(1, 12),
        "BYHOUR": numbers(0, 23),
        "BYMINUTE": numbers(0, 59),
        "BYSECOND": numbers(0, 59),
        "WKST": st.sampled_from(["MO", "SU", "WE"]),
        "BYDAY": WEEKDAYS.map(",".join),
    }
    if coarse:
        optional["BYDAY"] = st.one_of(
            WEEKDAYS.map(",".join),
            st.lists(st.sampled_from(["1MO", "-1FR", "2TU", "5SU", "-3WE"]), min_size=1, max_size=2).map(",".join),
        )
    if frequency != "WEEKLY":
        optional["BYMONTHDAY"] = numbers(1, 31, also_negative=True)
    if frequency == "YEARLY":
        optional["BYYEARDAY"] = numbers(1, 366, also_negative=True)
    chosen = draw(st.lists(st.sampled_from(sorted(optional)), max_size=4, unique=True))
    parts = [f"FREQ={frequency}", *(f"{name}={draw(optional[name])}" for name in chosen)]
    if "BYDAY" in chosen and frequency in ("YEARLY", "MONTHLY", "WEEKLY") and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(st.sampled_from(['1', '-1', '2', '1,-1']))}")
    return ";".join(parts)


@pytest.mark.requirement(4)
@bounded
@given(
    text=rules(),
    start=st.datetimes(datetime(1990, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    ahead=st.one_of(st.integers(0, 100_000), st.integers(0, 900_000_000)),
    count=st.one_of(st.none(), st.integers(1, 50)),
)
def test_wall_times_agree_with_dateutil(text: str, start: datetime, ahead: int, count: int | None):
    start = start.replace(microsecond=0)
    fine = any(name in text for name in ("HOURLY", "MINUTELY", "SECONDLY"))
    asked = start + timedelta(seconds=ahead % 500_000 if fine else ahead)
    text += "" if count is None else f";COUNT={count}"
    end = asked + timedelta(days=30 if fine else 2000)
    try:
        peer = rrulestr(text, dtstart=start)
        expected: list[datetime] = []
        for wall in peer.xafter(asked, inc=True):
            if wall > end or len(expected) == 80:
                break
            expected.append(wall)
    except ValueError:  # it says so when an interval can never meet its hours
        expected = []
    spec = ScheduleSpec(rrule=text, dtstart=start.isoformat())
    at = ms(asked.isoformat())
    try:
        key = resolve(spec, now_ms=at - 1).key
    except ScheduleError as error:
        assert error.code == "never_fires", error  # noqa: PT017
        assert expected == []
        return
    assert key is not None
    schedule, last = compile_key(key), ms(end.isoformat())
    walls = [ms(wall.isoformat()) for wall in expected]
    assert schedule.between(at - 1, last, 80) == walls
    if walls:
        assert schedule.prev_before(walls[-1] + 1) == walls[-1]
        assert [schedule.prev_before(after) for after in walls[1:6]] == walls[:5][: len(walls) - 1]
        assert schedule.count_between(at - 1, walls[-1]) == len(walls)
        assert schedule.next_after(walls[0] - 1) == walls[0]
    again, _ = parse_rule(rule_text(parse_rule(text)[0]))
    assert again == parse_rule(text)[0]


@pytest.mark.parametrize(
    ("rrule", "start", "end", "expected"),
    [
        # daily and coarser are fixed: made up after a gap, once in a repeated hour
        ("FREQ=DAILY", "2027-03-27T12:00", "2027-03-28T12:00", ["03-28T01:00"]),
        ("FREQ=DAILY", "2026-10-24T12:00", "2026-10-25T12:00", ["10-25T00:30"]),
        ("FREQ=DAILY;BYHOUR=2,3", "2027-03-27T12:00", "2027-03-28T12:00", ["03-28T01:00", "03-28T01:30"]),
        # hourly and finer are wildcard: both passes, and nothing made up
        ("FREQ=HOURLY", "2027-03-28T00:00", "2027-03-28T03:00", ["03-28T00:30", "03-28T01:30", "03-28T02:30"]),
        ("FREQ=HOURLY;BYHOUR=2", "2027-03-27T12:00", "2027-03-28T12:00", []),
        ("FREQ=HOURLY;BYHOUR=2", "2026-10-24T12:00", "2026-10-25T12:00", ["10-25T00:30", "10-25T01:30"]),
        # UNTIL and COUNT on wall times: both passes of the last hour belong to it
        (
            "FREQ=HOURLY;UNTIL=20261025T023000",
            "2026-10-24T23:00",
            "2026-10-26T00:00",
            ["10-24T23:30", "10-25T00:30", "10-25T01:30"],
        ),
        ("FREQ=HOURLY;UNTIL=20261025T022959", "2026-10-24T23:00", "2026-10-26T00:00", ["10-24T23:30"]),
    ],
)
def test_clock_changes(rrule: str, start: str, end: str, expected: list[str]):
    spec: dict[str, Any] = {"rrule": rrule, "dtstart": "2026-10-01T02:30:00", "timezone": BERLIN}
    assert fires(start, end, **spec) == expected
    found, backwards = compiled(**spec), []
    fire = found.prev_before(ms(end) + 1)
    while fire is not None and fire > ms(start):
        backwards.append(fire)
        fire = found.prev_before(fire)
    assert len(backwards) == len(expected) == found.count_between(ms(start), ms(end))


def test_policies_apply_to_fixed_rules():
    spec: dict[str, Any] = {"rrule": "FREQ=DAILY", "dtstart": "2026-10-01T02:30", "timezone": BERLIN}
    assert fires("2026-10-24T12:00", "2026-10-25T12:00", **spec, overlap_hour="second") == ["10-25T01:30"]
    assert fires("2026-10-24T12:00", "2026-10-25T12:00", **spec, overlap_hour="both") == ["10-25T00:30", "10-25T01:30"]
    assert fires("2027-03-27T12:00", "2027-03-28T12:00", **spec, gap="skip") == []


def test_exdates_are_wall_times_and_days():
    spec: dict[str, Any] = {"dtstart": "2026-10-23T02:30", "timezone": BERLIN}
    hourly = fires(
        "2026-10-24T22:00", "2026-10-25T02:00", rrule="FREQ=HOURLY", exdates=("2026-10-25T02:30:00",), **spec
    )
    assert hourly == ["10-24T22:30", "10-24T23:30"]
    days: dict[str, Any] = {"rrule": "FREQ=DAILY;BYHOUR=9,17", "exdates": ("2026-10-24",)}
    assert fires("2026-10-23T00:00", "2026-10-25T23:00", **days, **spec) == [
        "10-23T07:30",
        "10-23T15:30",
        "10-25T08:30",
        "10-25T16:30",
    ]
    # A time that does not exist and is excepted is not made up for.
    daily: dict[str, Any] = {"rrule": "FREQ=DAILY", "exdates": ("2027-03-28T02:30",)}
    assert fires("2027-03-27T12:00", "2027-03-28T12:00", **daily, **spec) == []


def test_dtstart_fires_only_if_it_matches():
    spec: dict[str, Any] = {"rrule": "FREQ=MONTHLY;BYDAY=1MO", "dtstart": "2026-01-01T09:00:00"}
    assert fires("2025-12-31T00:00", "2026-03-31T00:00", **spec) == ["01-05T09:00", "02-02T09:00", "03-02T09:00"]


def test_count_counts_from_dtstart():
    spec: dict[str, Any] = {"rrule": "FREQ=DAILY;COUNT=3", "dtstart": "2026-01-01T09:00:00"}
    assert fires("2025-01-01T00:00", "2027-01-01T00:00", **spec) == ["01-01T09:00", "01-02T09:00", "01-03T09:00"]
    assert compiled(**spec).next_after(ms("2026-01-03T09:00")) is None
    with pytest.raises(ScheduleError, match="never fires"):
        resolve(ScheduleSpec(**spec), now_ms=ms("2026-02-01"))


def test_without_dtstart_it_starts_with_the_job():
    now = ms("2026-11-15T20:15:30") + 250
    schedule = compiled(now, rrule="FREQ=DAILY", timezone=BERLIN)
    assert schedule.next_after(now) == ms("2026-11-16T20:15:30")
    later = compiled(now, rrule="FREQ=DAILY", timezone=BERLIN, start_at="2026-12-01T09:00")
    assert later.next_after(now) == ms("2026-12-01T08:00")


def test_instants_with_an_offset_are_read_as_wall_times_of_the_zone():
    local: dict[str, Any] = {
        "rrule": "FREQ=DAILY;UNTIL=20261025T013000Z",
        "dtstart": "2026-10-01T00:30Z",
        "timezone": BERLIN,
    }
    same: dict[str, Any] = {
        "rrule": "FREQ=DAILY;UNTIL=20261025T023000",
        "dtstart": "2026-10-01T02:30",
        "timezone": BERLIN,
    }
    assert resolve(ScheduleSpec(**local), now_ms=NOW) == resolve(ScheduleSpec(**same), now_ms=NOW)


def test_until_with_a_date_alone_includes_that_day():
    spec: dict[str, Any] = {"rrule": "FREQ=DAILY;UNTIL=20260102", "dtstart": "2026-01-01T09:00"}
    assert fires("2025-12-31T00:00", "2026-02-01T00:00", **spec) == ["01-01T09:00", "01-02T09:00"]


def test_keys_are_canonical():
    one = ScheduleSpec(rrule="rrule:freq=weekly;byday=fr,mo,MO;INTERVAL=1;WKST=MO", dtstart="2026-01-01 09:00")
    other = ScheduleSpec(rrule="FREQ=WEEKLY;BYDAY=MO,FR", dtstart="2026-01-01T09:00:00", timezone="UTC")
    key = resolve(one, now_ms=NOW).key
    assert key == '{"rrule":"FREQ=WEEKLY;BYDAY=MO,FR","dtstart":"2026-01-01T09:00:00"}'
    assert resolve(other, now_ms=NOW).key == key


@pytest.mark.parametrize(
    ("rrule", "says", "hint"),
    [
        ("", "NAME=VALUE", "FREQ=MONTHLY"),
        ("FREQ", "NAME=VALUE", "FREQ=MONTHLY"),
        ("BYDAY=MO", "FREQ is missing", "FREQ=MONTHLY"),
        ("FREQ=FORTNIGHTLY", "FREQ=FORTNIGHTLY", "WEEKLY"),
        ("FREQ=DAILY;FREQ=DAILY", "twice", "keep one"),
        ("FREQ=DAILY;BYDAYS=MO", "unknown part BYDAYS", "did you mean BYDAY?"),
        ("FREQ=YEARLY;BYEASTER=0", "unknown part BYEASTER", ""),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0", "1 to"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL=-1", "1 to"),
        ("FREQ=DAILY;COUNT=0", "COUNT=0", "1 to"),
        ("FREQ=DAILY;COUNT=many", "COUNT=MANY", "1 to"),
        ("FREQ=DAILY;COUNT=1000000", "COUNT=1000000", "100,000"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "exclude each other", "keep one"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL=TOMORROW", "20271231T235959"),
        ("FREQ=DAILY;UNTIL=20270230", "day is out of range", "check the date"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR=24", "0 to 23"),
        ("FREQ=DAILY;BYMINUTE=60", "BYMINUTE=60", "0 to 59"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND=60", "0 to 59"),
        ("FREQ=DAILY;BYMONTH=0", "BYMONTH=0", "1 to 12"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY=0", "1 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=-32", "BYMONTHDAY=-32", "-1 to -31"),
        ("FREQ=YEARLY;BYYEARDAY=367", "BYYEARDAY=367", "366"),
        ("FREQ=YEARLY;BYWEEKNO=54;BYDAY=MO", "BYWEEKNO=54", "53"),
        ("FREQ=WEEKLY;BYDAY=MON", "BYDAY=MON", "MO, TU"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY=0MO", "1MO"),
        ("FREQ=MONTHLY;BYDAY=6MO", "no sixth", "1 to 5"),
        ("FREQ=WEEKLY;WKST=XX", "WKST=XX", "MO, TU"),
        ("FREQ=DAILY;BYDAY=1MO", "numbered BYDAY means nothing with FREQ=DAILY", "FREQ=MONTHLY"),
        ("FREQ=WEEKLY;BYDAY=-1FR", "numbered BYDAY means nothing with FREQ=WEEKLY", "FREQ=MONTHLY"),
        ("FREQ=HOURLY;BYDAY=2TU", "numbered BYDAY means nothing with FREQ=HOURLY", "FREQ=MONTHLY"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=1MO", "beside BYWEEKNO", "remove"),
        ("FREQ=YEARLY;BYWEEKNO=20", "which day", "add BYDAY"),
        ("FREQ=MONTHLY;BYWEEKNO=20;BYDAY=MO", "BYWEEKNO means nothing", "YEARLY"),
        ("FREQ=MONTHLY;BYYEARDAY=20", "BYYEARDAY means nothing", "YEARLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=20", "BYMONTHDAY means nothing", "MONTHLY"),
        ("FREQ=DAILY;BYSETPOS=1", "other BY parts", "add one"),
        ("FREQ=HOURLY;BYMINUTE=0,30;BYSETPOS=3", "never matches", "1 to 2"),
        ("FREQ=MINUTELY;BYMONTH=1;BYSETPOS=2", "never matches", "1 to 1"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY", "one line", "dtstart"),
    ],
)
def test_refused_with_the_part_named(rrule: str, says: str, hint: str):
    with pytest.raises(ScheduleError) as caught:
        resolve(ScheduleSpec(rrule=rrule, dtstart="2026-01-01T09:00"), now_ms=NOW)
    assert caught.value.pointer == "/rrule"
    assert says in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "rrule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=3",
        "FREQ=SECONDLY;BYMONTH=4;BYMONTHDAY=31",
        "FREQ=SECONDLY;BYHOUR=3;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;INTERVAL=7;BYHOUR=3;BYMONTH=2;BYMONTHDAY=30;COUNT=5",
        "FREQ=SECONDLY;INTERVAL=172801;BYHOUR=3;BYDAY=MO",
        "FREQ=SECONDLY;INTERVAL=604800;BYDAY=MO",
        "FREQ=HOURLY;INTERVAL=2;BYHOUR=3",
        "FREQ=MINUTELY;INTERVAL=60;BYMINUTE=10",
        "FREQ=DAILY;UNTIL=20200101T000000",
    ],
)
def test_what_never_fires_is_found_out_soon(rrule: str):
    with pytest.raises(ScheduleError) as caught:
        resolve(ScheduleSpec(rrule=rrule, dtstart="2026-01-01T08:00"), now_ms=NOW)
    assert caught.value.code == "never_fires"


@pytest.mark.parametrize(
    ("rrule", "words"),
    [
        ("FREQ=DAILY", "every day at 09:00"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR", "every 2 weeks on Monday and Friday at 09:00"),
        ("FREQ=MONTHLY;BYDAY=1MO,-1FR", "every month on the last Friday and the 1st Monday at 09:00"),
        ("FREQ=MONTHLY", "every month on day 15 of the month at 09:00"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "every month on day -1 (from the end) of the month at 09:00"),
        ("FREQ=YEARLY;BYHOUR=8,12", "every year in March on day 15 of the month at 08:00 and 12:00"),
        ("FREQ=HOURLY;BYHOUR=9,10;COUNT=4", "every hour in the hours 9 and 10, 4 times"),
        ("FREQ=MINUTELY;INTERVAL=5", "every 5 minutes"),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            "every month on Monday, Tuesday, Wednesday, Thursday and Friday at 09:00"
            " (only the last of them in each month)",
        ),
    ],
)
def test_in_words(rrule: str, words: str):
    assert compiled(rrule=rrule, dtstart="2026-03-15T09:00:00").describe() == words


def test_rare_days_of_a_fine_rule_are_found_without_stepping_there():
    rrule = "FREQ=SECONDLY;BYHOUR=3;BYMINUTE=0;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"
    schedule = compiled(rrule=rrule, dtstart="2026-01-01T00:00")
    assert schedule.next_after(NOW) == ms("2044-02-29T03:00:00")
    assert schedule.next_after(ms("2044-02-29T03:00:59")) == ms("2072-02-29T03:00:00")
    assert schedule.prev_before(ms("2072-02-29T03:00:00")) == ms("2044-02-29T03:00:59")


@settings(bounded, max_examples=40)
@given(
    zone=st.sampled_from(ZONES),
    year=st.integers(1991, 2040),
    policy=policies,
    data=st.data(),
    hours=st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True),
    minute=st.integers(0, 59),
)
def test_clock_changes_agree_with_walking_every_minute(zone, year, policy, data, hours, minute):
    around = data.draw(st.sampled_from(changes(zone, year) or [datetime(year, 6, 1, tzinfo=UTC)]))
    start, end = around - timedelta(hours=9), around + timedelta(hours=9)
    listed = ",".join(map(str, sorted(hours)))
    options = {"timezone": zone, "gap": policy["gap"], "overlap_hour": policy["overlap_hour"]}
    for rrule, cron in (
        (f"FREQ=DAILY;BYHOUR={listed};BYMINUTE={minute}", f"{minute} {listed} * * *"),  # fixed
        (f"FREQ=HOURLY;BYHOUR={listed};BYMINUTE={minute}", f"{minute} */1,{listed} * * *"),  # wildcard
    ):
        oracle = Oracle(cron, zone, **policy)
        oracle.hours = set(hours)
        schedule = compiled(ms("1990-06-01"), rrule=rrule, dtstart="1990-01-01T00:00:00", **options)
        expected = [round(fire.timestamp()) * 1000 for fire in oracle.fires(start, end)]
        low, high = round(start.timestamp()) * 1000, round(end.timestamp()) * 1000
        assert schedule.between(low, high, 100) == expected
        assert schedule.count_between(low, high) == len(expected)
        assert schedule.prev_before(high + 1) == (expected[-1] if expected else schedule.prev_before(low + 1))


def test_in_words_as_written():
    rule = ScheduleSpec(rrule="FREQ=WEEKLY;BYDAY=MO", timezone=BERLIN)
    assert describe_spec(rule) == "every week on Monday from its creation on (Europe/Berlin)"
    assert describe_spec(ScheduleSpec(rrule="FREQ=DAILY", start_at="2027-01-01T09:30", timezone=BERLIN)) == (
        "every day at 09:30 (Europe/Berlin) from 2027-01-01T09:30"
    )


def test_notes_on_clock_changes():
    key = resolve(ScheduleSpec(rrule="FREQ=DAILY", dtstart="2026-01-01T02:30", timezone=BERLIN), now_ms=NOW).key
    assert key is not None
    assert notes(key, ms("2026-09-01")) == [
        "2026-10-25 02:30 happens twice in Europe/Berlin: fires the first time",
        "2027-03-28 02:30 does not exist in Europe/Berlin: fires at 03:00",
    ]


def test_a_rule_in_its_twentieth_year_costs_no_more_than_in_its_first():
    # Walking there from the start would take ten million steps, and the test's patience.
    schedule = compiled(rrule="FREQ=MINUTELY", dtstart="2001-01-01T00:00:00")
    at = ms("2026-11-15T12:00")
    assert schedule.next_after(at) == at + 60_000
    assert schedule.prev_before(at) == at - 60_000
