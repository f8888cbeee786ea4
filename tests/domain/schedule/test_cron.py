from datetime import UTC, datetime
from itertools import pairwise

import pytest

from mainspring.domain.schedule.cron import CronError, parse_cron, split_zone


def walls(text: str, count: int, start: str = "2027-01-01", *, day_and: bool = False) -> list[str]:
    cron = parse_cron(text, day_and=day_and)
    wall, found = round(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()), []
    for _ in range(count):
        match = cron.next_wall(wall)
        assert match is not None
        found.append(datetime.fromtimestamp(match, UTC).strftime("%m-%d %H:%M"))
        wall = match + 1
    return found


@pytest.mark.requirement(1)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 2 * * *", ["01-01 02:00", "01-02 02:00"]),
        ("*/20 * * * *", ["01-01 00:00", "01-01 00:20", "01-01 00:40", "01-01 01:00"]),
        ("5/25 0 * * *", ["01-01 00:05", "01-01 00:30", "01-01 00:55", "01-02 00:05"]),
        ("10-30/10 1,3 * * *", ["01-01 01:10", "01-01 01:20", "01-01 01:30", "01-01 03:10"]),
        ("0 22-1 * * *", ["01-01 00:00", "01-01 01:00", "01-01 22:00", "01-01 23:00", "01-02 00:00"]),
        ("0 22-4/3 * * *", ["01-01 01:00", "01-01 04:00", "01-01 22:00", "01-02 01:00"]),
        ("0 0 * * FRI-MON", ["01-01 00:00", "01-02 00:00", "01-03 00:00", "01-04 00:00", "01-08 00:00"]),
        ("0 0 1 nov-feb *", ["01-01 00:00", "02-01 00:00", "11-01 00:00", "12-01 00:00"]),
        ("0 0 * * 0", ["01-03 00:00", "01-10 00:00"]),
        ("0 0 * * 7", ["01-03 00:00", "01-10 00:00"]),
        ("0 0 * * 7-1", ["01-03 00:00", "01-04 00:00", "01-10 00:00"]),
        ("0 0 * * 7/3", ["01-02 00:00", "01-03 00:00", "01-06 00:00"]),
        ("0 0 ? * MON", ["01-04 00:00", "01-11 00:00"]),
        ("0 0 31 * ?", ["01-31 00:00", "03-31 00:00", "05-31 00:00"]),
        ("\t0  2 *\t* * ", ["01-01 02:00", "01-02 02:00"]),
    ],
)
def test_five_fields(text: str, expected: list[str]):
    assert walls(text, len(expected)) == expected


@pytest.mark.requirement(4)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@hourly", ["01-01 00:00", "01-01 01:00"]),
        ("@daily", ["01-01 00:00", "01-02 00:00"]),
        ("@midnight", ["01-01 00:00", "01-02 00:00"]),
        ("@WEEKLY", ["01-03 00:00", "01-10 00:00"]),
        ("@monthly", ["01-01 00:00", "02-01 00:00"]),
        ("@yearly", ["01-01 00:00", "01-01 00:00"]),
        ("@annually", ["01-01 00:00", "01-01 00:00"]),
    ],
)
def test_macros(text: str, expected: list[str]):
    assert walls(text, len(expected)) == expected


@pytest.mark.requirement(4)
def test_first_monday_of_every_month():
    mondays = ["01-04", "02-01", "03-01", "04-05", "05-03", "06-07"]
    mondays += ["07-05", "08-02", "09-06", "10-04", "11-01", "12-06"]
    assert walls("0 9 1-7 * MON", 12, day_and=True) == [f"{day} 09:00" for day in mondays]


@pytest.mark.parametrize(
    ("text", "day_and", "expected"),
    [
        ("0 0 13 * FRI", False, ["01-01", "01-08", "01-13", "01-15"]),  # either
        ("0 0 13 * FRI", True, ["08-13"]),
        ("0 0 */2 * FRI", False, ["01-01", "01-15", "01-29", "02-05"]),  # both: one starts with *
        ("0 0 1-31/2 * FRI", False, ["01-01", "01-03", "01-05", "01-07", "01-08"]),
        ("0 0 13 * */2", False, ["02-13", "03-13", "04-13", "05-13", "06-13", "07-13", "11-13"]),
        ("0 0 ? * FRI", False, ["01-01", "01-08"]),
    ],
)
def test_day_of_month_and_day_of_week(text: str, day_and: bool, expected: list[str]):
    assert walls(text, len(expected), day_and=day_and) == [f"{day} 00:00" for day in expected]


def test_the_caret_stays_in_place_whatever_the_blanks():
    with pytest.raises(CronError) as caught:
        parse_cron("*\t25 * * *")
    assert str(caught.value).split("\n")[1:] == ["  * 25 * * *", "    ^^"]
    with pytest.raises(CronError) as caught:
        parse_cron("0 2 * *  MOO")
    assert str(caught.value).split("\n")[2] == "           ^^^"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" 00  2 * * * ", "0 2 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("*/1 * ? jan-mar SUN,7", "* * * 1-3 0"),
        ("0/15 22-2 1,2,3 */3 FRI-MON", "0-45/15 0-2,22-23 1-3 */3 0-1,5-6"),
        ("*/20,5 * * 1,4,7,10 *", "*/20,5 * * */3 *"),
        ("0-59 * 1-31 1-12 *", "0-59 * 1-31 * *"),
        ("0 0 2 * * *", "0 2 * * *"),
        ("0-59 0 2 * * *", "* 0 2 * * *"),
        ("0/20 * * * * *", "*/20 * * * * *"),
        ("30 0 2 * * *", "30 0 2 * * *"),
        ("0 0 lw,l-3,15w,L,1 * *", "0 0 1,15W,L,L-3,LW * *"),
        ("0 0 *,L * *", "0 0 * * *"),
        ("0 0 * * fri#l,MON#3,1#1,5,7L", "0 0 * * 5,1#1,1#3,0#L,5#L"),
    ],
)
def test_normal_form(text: str, normal: str):
    assert parse_cron(text).text == normal


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("0 2 * * *", True),
        ("0 1-5 * * *", True),
        ("0-59 0-23 * * *", True),
        ("* 2 * * *", False),
        ("*/5 2 * * *", False),
        ("0 * * * *", False),
        ("0 */2 * * *", False),
        ("0/5 2 * * *", True),
        ("0,*/5 2 * * *", True),
        ("* 0 2 * * *", True),
        ("0 * 2 * * *", False),
    ],
)
def test_fixed_or_wildcard(text: str, fixed: bool):
    assert parse_cron(text).fixed is fixed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes between 09:00 and 17:59 on Monday to Friday"),
        ("*/10 22-2 * * *", "every 10 minutes between 22:00 and 02:59"),
        ("0 2 * * *", "at 02:00 every day"),
        ("30 9,17 * * SAT,SUN", "at 09:30 and 17:30 on Saturday and Sunday"),
        ("0 * * * *", "every hour"),
        ("5 */2 * * *", "every 2 hours at minute 5"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 0 1 */3 *", "at 00:00 on day 1 of the month in January, April, July and October"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month or on Friday"),
        (
            "0 0 */10 * FRI,SAT",
            "at 00:00 on days 1, 11, 21 and 31 of the month, only if it is Friday or Saturday",
        ),
        ("*/7 * * * *", "at minutes 0 to 56 in steps of 7 of every hour"),
        ("0 0 * 6-8 *", "at 00:00 every day in June to August"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("15 * * * * *", "at second 15 of every minute"),
        ("0,7 * * * * *", "at seconds 0 and 7 of every minute"),
        ("30 0 2 * * *", "at 02:00:30 every day"),
        ("*/30 0 2 * * MON", "at 02:00:00 and 02:00:30 on Monday"),
        ("*/10 * 9-17 * * *", "every 10 seconds between 09:00 and 17:59"),
        ("*/10 * 9,17 * * *", "every 10 seconds of the hours 9 and 17"),
        ("*/10 */15 * * * *", "every 10 seconds of minutes 0, 15, 30 and 45 of every hour"),
        ("*/10 5 2 * * *", "at 02:05:00, 02:05:10, 02:05:20, 02:05:30, 02:05:40 and 02:05:50 every day"),
        ("* 5 2 * * *", "every second of minute 5 of hour 2"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 on the 4th-last day of the month"),
        ("0 0 LW 6 *", "at 00:00 on the last weekday of the month in June"),
        ("0 0 1,15W,L * *", "at 00:00 on day 1, the weekday nearest day 15 and the last day of the month"),
        ("0 9 * * MON#1", "at 09:00 on the first Monday of the month"),
        ("0 9 * * FRI#L,3", "at 09:00 on Wednesday and the last Friday of the month"),
        ("0 9 13 * FRI#2", "at 09:00 on day 13 of the month or on the second Friday of the month"),
        (
            "0 9 */2 * 5L",
            "at 09:00 on days 1 to 31 in steps of 2 of the month, only if it is the last Friday of the month",
        ),
    ],
)
def test_describe(text: str, words: str):
    assert parse_cron(text).describe() == words


@pytest.mark.requirement(4)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 0 L-3 * *", ["01-28", "02-25", "03-28", "04-27"]),
        ("0 0 L-30 * *", ["01-01", "03-01", "05-01", "07-01"]),
        ("0 0 LW * *", ["01-29", "02-26", "03-31", "04-30", "05-31"]),
        ("0 0 1W * *", ["01-01", "02-01", "03-01", "04-01", "05-03"]),  # 1 May is a Saturday
        ("0 0 15W * *", ["01-15", "02-15", "03-15", "04-15", "05-14", "06-15", "07-15", "08-16"]),
        ("0 0 31W * *", ["01-29", "03-31", "05-31", "07-30"]),  # not in a month without a 31st
        ("0 0 1W,L * *", ["01-01", "01-31", "02-01", "02-28"]),
        ("0 0 L-1,1W * *", ["01-01", "01-30", "02-01", "02-27"]),
        ("0 0 * * MON#1", ["01-04", "02-01", "03-01", "04-05"]),
        ("0 0 * * 1#5", ["03-29", "05-31", "08-30", "11-29"]),
        ("0 0 * * FRI#L", ["01-29", "02-26", "03-26", "04-30"]),
        ("0 0 * * 5L", ["01-29", "02-26", "03-26", "04-30"]),
        ("0 0 * * 7#2,0L", ["01-10", "01-31", "02-14", "02-28"]),
        ("0 0 * * MON#1,WED", ["01-04", "01-06", "01-13", "01-20", "01-27", "02-01"]),
        ("0 0 13 * FRI#L", ["01-13", "01-29", "02-13", "02-26"]),  # either
    ],
)
def test_days_by_rule(text: str, expected: list[str]):
    assert walls(text, len(expected)) == [f"{day} 00:00" for day in expected]


def test_days_by_rule_in_a_leap_year():
    assert walls("0 0 L 2 *", 2, "2028-01-01") == ["02-29 00:00", "02-28 00:00"]
    assert walls("0 0 L-28 2 *", 2, "2027-01-01") == ["02-01 00:00", "02-01 00:00"]  # 2028, 2032


def test_six_fields_have_seconds_first():
    cron = parse_cron("15,45 30 9 * * *")
    first = cron.next_wall(0)
    assert first == 9 * 3600 + 30 * 60 + 15
    assert cron.next_wall(first + 1) == first + 30
    assert cron.next_wall(first + 31) == first + 86_400
    assert cron.prev_wall(first + 30) == first + 30
    assert cron.prev_wall(first + 29) == first


@pytest.mark.parametrize("field", range(6))
def test_h_is_the_same_for_a_job_and_spread_over_a_fleet(field: int):
    low, high = ((0, 59), (0, 59), (0, 23), (1, 28), (1, 12), (0, 6))[field]
    text = " ".join("H" if position == field else "0" if position < 3 else "*" for position in range(6))
    found = {parse_cron(text, seed=f"acme/job-{n}").text for n in range(1000)}
    assert len(found) == high - low + 1
    assert parse_cron(text, seed="acme/job-1").text == parse_cron(text, seed="acme/job-1").text
    values = {
        0 if len(words := text.split()) == 5 and field == 0 else int(words[field - 6 + len(words)]) for text in found
    }
    assert values == set(range(low, high + 1))


def test_h_does_not_change_from_one_version_to_the_next():
    assert parse_cron("H H * * *", seed="acme/report").text == parse_cron("H H * * *", seed="acme/report").text
    assert parse_cron("H H H H H", seed="acme/report").text == "58 1 21 1 6"
    assert parse_cron("@daily", seed="acme/report").text == "0 0 * * *"


@pytest.mark.parametrize(
    ("text", "size", "low", "high", "step"),
    [
        ("H/15 * * * *", 4, 0, 59, 15),
        ("H(0-29) * * * *", 1, 0, 29, 0),
        ("H(0-29)/10 * * * *", 3, 0, 29, 10),
        ("h(10-19)/3 * * * *", 3, 10, 19, 3),
    ],
)
def test_h_with_range_and_step(text: str, size: int, low: int, high: int, step: int):
    for n in range(200):
        minutes = [wall // 60 for wall in range(0, 3600, 60) if parse_cron(text, seed=str(n)).next_wall(wall) == wall]
        assert size <= len(minutes) <= size + 1
        assert low <= minutes[0] <= minutes[-1] <= high
        assert {after - before for before, after in pairwise(minutes)} <= {step}
        assert not step or minutes[0] < low + step


def test_h_in_the_day_of_month_stays_where_every_month_has_days():
    days = {parse_cron("0 0 H(20-31) * *", seed=str(n)).text.split()[2] for n in range(300)}
    assert days == {str(day) for day in range(20, 29)}


def test_counting_by_bits_is_counting_one_by_one():
    year = 365 * 86_400
    for text in ("*/5 * * * *", "7,37 0 2 L * *", "0 9-17 * * MON-FRI", "30 2 1W,LW */2 SUN#2"):
        cron = parse_cron(text)
        found, wall = 0, cron.next_wall(1_000_000_007)
        while wall is not None and wall < 1_000_000_007 + year:
            found, wall = found + 1, cron.next_wall(wall + 1)
        assert cron.count_walls(1_000_000_007, 1_000_000_007 + year) == found


def test_zone_prefix():
    assert split_zone("TZ=Europe/Berlin 0 2 * * *") == ("Europe/Berlin", "0 2 * * *")
    assert split_zone(" CRON_TZ=UTC\t@daily ") == ("UTC", "@daily")
    assert split_zone("0 2 * * *") == (None, "0 2 * * *")
