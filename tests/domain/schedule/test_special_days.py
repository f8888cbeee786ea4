"""Days on which schedulers go wrong, each with its fires written out in UTC."""

from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring.domain.schedule.schedule import ScheduleSpec, compile_key, notes, resolve


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def fires(start: str, end: str, **spec: Any) -> list[str]:
    """Fires after `start` up to `end` as `DDTHH:MM`, UTC."""
    key = resolve(ScheduleSpec(**spec), now_ms=0).key
    assert key is not None
    found = compile_key(key).between(ms(start), ms(end), 100)
    return [datetime.fromtimestamp(fire / 1000, UTC).strftime("%dT%H:%M") for fire in found]


BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
SPRING = ("2027-03-27T12:00", "2027-03-28T12:00")  # Berlin, 02:00 becomes 03:00 at 01:00Z
AUTUMN = ("2026-10-24T12:00", "2026-10-25T12:00")  # Berlin, 03:00 becomes 02:00 at 01:00Z


@pytest.mark.requirement(7)
@pytest.mark.parametrize(
    ("cron", "gap", "expected"),
    [
        ("30 2 * * *", "next_valid", ["28T01:00"]),
        ("30 2 * * *", "skip", []),
        ("0,15,30,45 2 * * *", "next_valid", ["28T01:00"]),
        ("30 2,3 * * *", "next_valid", ["28T01:00", "28T01:30"]),
        ("0,30 2-3 * * *", "next_valid", ["28T01:00", "28T01:30"]),
        ("0,30 2-3 * * *", "skip", ["28T01:00", "28T01:30"]),
        ("0 3 * * *", "next_valid", ["28T01:00"]),
        ("59 1 * * *", "next_valid", ["28T00:59"]),
        ("*/10 2 * * *", "next_valid", []),
        (
            "30 */2 28 3 *",
            "next_valid",
            ["27T23:30", "28T02:30", "28T04:30", "28T06:30", "28T08:30", "28T10:30"],
        ),
        ("0 * 28 3 *", "next_valid", ["27T23:00", *(f"28T{hour:02}:00" for hour in range(13))]),
        ("30 2 28 3 *", "next_valid", ["28T01:00"]),
    ],
)
def test_berlin_in_spring(cron: str, gap: str, expected: list[str]):
    assert fires(*SPRING, cron=cron, timezone=BERLIN, gap=gap) == expected


@pytest.mark.requirement(7)
@pytest.mark.parametrize(
    ("cron", "overlap_hour", "expected"),
    [
        ("30 2 * * *", "first", ["25T00:30"]),
        ("30 2 * * *", "second", ["25T01:30"]),
        ("30 2 * * *", "both", ["25T00:30", "25T01:30"]),
        ("0 2 * * *", "first", ["25T00:00"]),
        ("0 2 * * *", "second", ["25T01:00"]),
        ("0 3 * * *", "first", ["25T02:00"]),
        ("0 3 * * *", "second", ["25T02:00"]),
        ("0,30 1-3 * * *", "first", ["24T23:00", "24T23:30", "25T00:00", "25T00:30", "25T02:00", "25T02:30"]),
        (
            "0,30 1-3 * * *",
            "second",
            ["24T23:00", "24T23:30", "25T01:00", "25T01:30", "25T02:00", "25T02:30"],
        ),
        ("*/30 2 * * *", "first", ["25T00:00", "25T00:30", "25T01:00", "25T01:30"]),
        (
            "30 */2 25 10 *",
            "second",
            ["24T22:30", "25T00:30", "25T01:30", "25T03:30", "25T05:30", "25T07:30", "25T09:30", "25T11:30"],
        ),
    ],
)
def test_berlin_in_autumn(cron: str, overlap_hour: str, expected: list[str]):
    assert fires(*AUTUMN, cron=cron, timezone=BERLIN, overlap_hour=overlap_hour) == expected


@pytest.mark.requirement(7)
@pytest.mark.parametrize(
    ("zone", "start", "end", "spec", "expected"),
    [
        (NEW_YORK, "2027-03-14T00:00", "2027-03-15T00:00", {"cron": "30 2 * * *"}, ["14T07:00"]),
        (NEW_YORK, "2027-03-14T00:00", "2027-03-15T00:00", {"cron": "30 2 * * *", "gap": "skip"}, []),
        (NEW_YORK, "2026-11-01T00:00", "2026-11-02T00:00", {"cron": "30 1 * * *"}, ["01T05:30"]),
        (
            NEW_YORK,
            "2026-11-01T00:00",
            "2026-11-02T00:00",
            {"cron": "30 1 * * *", "overlap_hour": "second"},
            ["01T06:30"],
        ),
        # half an hour: 02:00 becomes 02:30, and 02:00 becomes 01:30
        (LORD_HOWE, "2026-10-03T12:00", "2026-10-04T00:00", {"cron": "15 2 * * *"}, ["03T15:30"]),
        (
            LORD_HOWE,
            "2026-10-03T12:00",
            "2026-10-04T00:00",
            {"cron": "15,45 2 * * *"},
            ["03T15:30", "03T15:45"],
        ),
        (LORD_HOWE, "2027-04-03T12:00", "2027-04-04T00:00", {"cron": "45 1 * * *"}, ["03T14:45"]),
        (
            LORD_HOWE,
            "2027-04-03T12:00",
            "2027-04-04T00:00",
            {"cron": "45 1 * * *", "overlap_hour": "second"},
            ["03T15:15"],
        ),
        (
            LORD_HOWE,
            "2027-04-03T12:00",
            "2027-04-04T00:00",
            {"cron": "15 1 * * *", "overlap_hour": "second"},
            ["03T14:15"],
        ),
        (
            LORD_HOWE,
            "2027-04-03T14:00",
            "2027-04-03T16:00",
            {"cron": "*/15 1 * * *"},
            ["03T14:15", "03T14:30", "03T14:45", "03T15:00", "03T15:15"],
        ),
        # 30 December 2011 never was
        (
            "Pacific/Apia",
            "2011-12-29T00:00",
            "2012-01-01T00:00",
            {"cron": "0 12 * * *"},
            ["29T22:00", "30T22:00", "31T22:00"],
        ),
        ("Pacific/Apia", "2011-12-29T00:00", "2012-01-01T00:00", {"cron": "0 12 30 12 *"}, []),
        ("Pacific/Apia", "2011-12-29T00:00", "2012-01-01T00:00", {"cron": "0 0 * * FRI"}, []),
        # Ramadan 2027: summer time is left on 7 February and taken up again on 14 March
        ("Africa/Casablanca", "2027-02-06T12:00", "2027-02-07T12:00", {"cron": "30 2 * * *"}, ["07T01:30"]),
        (
            "Africa/Casablanca",
            "2027-02-06T12:00",
            "2027-02-07T12:00",
            {"cron": "30 2 * * *", "overlap_hour": "both"},
            ["07T01:30", "07T02:30"],
        ),
        ("Africa/Casablanca", "2027-03-13T12:00", "2027-03-14T12:00", {"cron": "30 2 * * *"}, ["14T02:00"]),
        ("Asia/Kathmandu", "2027-01-01T00:00", "2027-01-02T00:00", {"cron": "0 0 * * *"}, ["01T18:15"]),
        (
            "Asia/Kathmandu",
            "2027-01-01T00:00",
            "2027-01-01T02:00",
            {"cron": "0 * * * *"},
            ["01T00:15", "01T01:15"],
        ),
        ("UTC", "2026-12-31T22:00", "2027-01-01T00:30", {"cron": "59 23 31 12 *"}, ["31T23:59"]),
        ("UTC", "2026-12-31T22:00", "2027-01-01T00:30", {"cron": "@yearly"}, ["01T00:00"]),
        ("Pacific/Kiritimati", "2026-12-31T00:00", "2027-01-01T00:30", {"cron": "@yearly"}, ["31T10:00"]),
    ],
)
def test_other_zones(zone: str, start: str, end: str, spec: dict[str, Any], expected: list[str]):
    assert fires(start, end, timezone=zone, **spec) == expected


@pytest.mark.requirement(7)
@pytest.mark.parametrize(
    ("zone", "start", "end", "cron", "expected"),
    [
        # seconds: what a gap swallows is made up once, on its first second
        (BERLIN, *SPRING, "15,45 30 2 * * *", ["28T01:00:00"]),
        (BERLIN, *SPRING, "*/30 59 1 * * *", ["28T00:59:00", "28T00:59:30"]),
        (BERLIN, *SPRING, "30 0 3 * * *", ["28T01:00:30"]),
        (BERLIN, *SPRING, "30 0 2,3 * * *", ["28T01:00:00", "28T01:00:30"]),
        (BERLIN, *AUTUMN, "15,45 30 2 * * *", ["25T00:30:15", "25T00:30:45"]),
        (BERLIN, *AUTUMN, "20 */30 2 * * *", ["25T00:00:20", "25T00:30:20", "25T01:00:20", "25T01:30:20"]),
        (LORD_HOWE, "2026-10-03T12:00", "2026-10-04T00:00", "5 15,45 2 * * *", ["03T15:30:00", "03T15:45:05"]),
        # days by rule that are the day of a change: its last Sunday, or its last day
        (BERLIN, *SPRING, "30 2 * 3 SUN#L", ["28T01:00:00"]),
        (BERLIN, *SPRING, "30 2 L-3 3 *", ["28T01:00:00"]),
        (BERLIN, *SPRING, "30 2 28W 3 *", []),  # it is a Sunday: Monday the 29th
        (BERLIN, *AUTUMN, "30 2 * * 7L", ["25T00:30:00"]),
        (BERLIN, "2027-10-30T12:00", "2027-10-31T12:00", "30 2 L * *", ["31T00:30:00"]),
        (BERLIN, "2027-10-28T12:00", "2027-10-31T12:00", "30 2 LW * *", ["29T00:30:00"]),
        (NEW_YORK, "2027-03-14T00:00", "2027-03-15T00:00", "30 2 * 3 SUN#2", ["14T07:00:00"]),
        (NEW_YORK, "2026-11-01T00:00", "2026-11-02T00:00", "30 1 * 11 SUN#1", ["01T05:30:00"]),
        ("Pacific/Apia", "2011-12-28T00:00", "2012-01-01T00:00", "0 12 * 12 FRI#L", []),  # the day that never was
        ("Pacific/Apia", "2011-12-28T00:00", "2012-01-01T00:00", "0 12 LW 12 *", []),
        ("Asia/Kathmandu", "2028-02-28T00:00", "2028-03-01T00:00", "10 0 0 L 2 *", ["28T18:15:10"]),
        ("UTC", "2026-12-31T22:00", "2027-01-01T00:30", "59 59 23 L 12 *", ["31T23:59:59"]),
    ],
)
def test_seconds_and_days_by_rule(zone: str, start: str, end: str, cron: str, expected: list[str]):
    key = resolve(ScheduleSpec(cron=cron, timezone=zone), now_ms=0).key
    assert key is not None
    schedule = compile_key(key)
    found = schedule.between(ms(start), ms(end), 100)
    assert [datetime.fromtimestamp(fire / 1000, UTC).strftime("%dT%H:%M:%S") for fire in found] == expected
    assert schedule.count_between(ms(start), ms(end)) == len(expected)


@pytest.mark.parametrize(
    ("cron", "options", "expected"),
    [
        ("0 0 27 3 *", "", "2027-03-26T23:00"),
        ("30 2 28 3 *", "", "2027-03-28T01:00"),
        ("30 2 28 3 *", ',"gap":"skip"', "2028-03-28T00:30"),
        ("30 2 31 10 *", "", "2027-10-31T00:30"),
        ("30 2 31 10 *", ',"overlap_hour":"second"', "2027-10-31T01:30"),
    ],
)
def test_rare_fires_next_to_a_change_are_found_from_far_away(cron: str, options: str, expected: str):
    schedule = compile_key(f'{{"cron":"{cron}","tz":"Europe/Berlin"{options}}}')
    assert schedule.next_after(ms("2026-11-15")) == ms(expected)


def test_a_repeated_hour_is_not_passed_over_on_the_way_to_a_rare_date():
    # The next Sunday from the 6th to the 8th is months away; its 01:00 hour of today comes once more before.
    found = fires(
        "2021-11-07T06:30", "2021-11-07T09:00", cron="*/20 1 6-8 * SUN", day_and=True, timezone="America/Matamoros"
    )
    assert found == ["07T06:40", "07T07:00", "07T07:20", "07T07:40"]


def test_asking_just_before_a_gap_finds_the_fire_made_up_after_it():
    schedule = compile_key('{"cron":"30 2 * * *","tz":"Europe/Berlin"}')
    change = ms("2027-03-28T01:00")
    assert [schedule.next_after(asked) for asked in (change - 1000, change - 1)] == [change, change]
    assert schedule.next_after(change) == ms("2027-03-29T00:30")
    assert schedule.prev_before(change + 1) == change
    assert schedule.prev_before(change) == ms("2027-03-27T01:30")


@pytest.mark.requirement(7)
def test_the_same_cron_in_two_zones_moves_with_each_of_them():
    # New York changes two weeks before Berlin.
    window = ("2027-03-13T00:00", "2027-03-14T23:00")
    assert fires(*window, cron="0 9 * * *", timezone=NEW_YORK) == ["13T14:00", "14T13:00"]
    assert fires(*window, cron="0 9 * * *", timezone=BERLIN) == ["13T08:00", "14T08:00"]
    window = ("2027-03-27T00:00", "2027-03-28T23:00")
    assert fires(*window, cron="0 9 * * *", timezone=NEW_YORK) == ["27T13:00", "28T13:00"]
    assert fires(*window, cron="0 9 * * *", timezone=BERLIN) == ["27T08:00", "28T07:00"]


def test_the_29th_of_february():
    def years(**spec: Any) -> list[int]:
        key = resolve(ScheduleSpec(**spec), now_ms=ms("2027-01-01")).key
        assert key is not None
        found = compile_key(key).between(ms("2027-01-01"), ms("2125-01-01"), 100)
        return [datetime.fromtimestamp(fire / 1000, UTC).year for fire in found]

    leap_years = [year for year in range(2028, 2125, 4) if year != 2100]
    assert years(cron="0 0 29 2 *") == leap_years
    on_monday = [year for year in leap_years if datetime(year, 2, 29, tzinfo=UTC).weekday() == 0]
    assert years(cron="0 0 29 2 MON", day_and=True) == on_monday == [2044, 2072, 2112]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"cron": "30 2 * * *"},
            [
                "2026-10-25 02:30 happens twice in Europe/Berlin: fires the first time",
                "2027-03-28 02:30 does not exist in Europe/Berlin: fires at 03:00",
            ],
        ),
        (
            {"cron": "0,30 2 * * *", "gap": "skip", "overlap_hour": "both"},
            [
                "2026-10-25 02:00 to 02:30 happen twice in Europe/Berlin: fires both times",
                "2027-03-28 02:00 to 02:30 do not exist in Europe/Berlin: does not fire",
            ],
        ),
        (
            {"cron": "0,30 2 28 3 *"},
            ["2027-03-28 02:00 to 02:30 do not exist in Europe/Berlin: fires once, at 03:00"],
        ),
        (
            {"cron": "*/30 2 28 3 *"},
            ["2027-03-28 02:00 to 02:30 do not exist in Europe/Berlin: does not fire"],
        ),
        ({"cron": "0 * * * *"}, []),
        ({"cron": "0 9 * * *"}, []),
        ({"every": "90m"}, []),
    ],
)
def test_notes_tell_what_clock_changes_do(spec: dict[str, Any], expected: list[str]):
    key = resolve(ScheduleSpec(timezone=BERLIN, **spec), now_ms=0).key
    assert key is not None
    assert notes(key, ms("2026-09-01")) == expected
