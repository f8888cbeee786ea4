from datetime import UTC, datetime

import pytest

from mainspring.domain.cron import CronError, parse_cron, split_zone


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


@pytest.mark.requirement(1)
@pytest.mark.parametrize(
    ("text", "field", "caret", "hint"),
    [
        ("61 2 * * *", "minute", "^^", "allowed are 0-59"),
        ("0 24 * * *", "hour", "  ^^", "allowed are 0-23"),
        ("0 2 0 * *", "day of month", "    ^", "allowed are 1-31"),
        ("0 2 1,32 * *", "day of month", "      ^^", "allowed are 1-31"),
        ("0 2 * 13 *", "month", "      ^^", "JAN-DEC"),
        ("0 2 * * 8", "day of week", "        ^", "0-7 or SUN-SAT"),
        ("0 2 * *  MOO", "day of week", "         ^^^", "SUN-SAT"),
        ("0 2 * * Monday", "day of week", "        ^^^^^^", "write MON"),
        ("0 2 * january *", "month", "      ^^^^^^^", "write JAN"),
        ("0 MON * * *", "hour", "  ^^^", "0-23"),
        ("*/60 * * * *", "minute", "  ^^", "1 to 59"),
        ("*/0 * * * *", "minute", "  ^", "1 to 59"),
        ("0 */24 * * *", "hour", "    ^^", "1 to 23"),
        ("0 0 */31 * *", "day of month", "      ^^", "1 to 30"),
        ("0 0 * */12 *", "month", "        ^^", "1 to 11"),
        ("0 0 * * */7", "day of week", "          ^", "1 to 6"),
        ("*/x * * * *", "minute", "  ^", "*/5"),
        ("0 0 * * MON/2", "day of week", "        ^^^^^", "1/2"),
        ("50-10 * * * *", "minute", "^^^^^", "50-59,0-10"),
        ("0 0 25-5 * *", "day of month", "    ^^^^", "25-31,1-5"),
        ("1,,2 * * * *", "minute", "  ^", "comma"),
        ("1- * * * *", "minute", "  ^", "0-59"),
        ("-1 * * * *", "minute", "^", "0-59"),
        ("٣ * * * *", "minute", "^", "0-59"),
        ("? * * * *", "minute", "^", "write *"),
        ("0 0 ?,1 * *", "day of month", "    ^", "write *"),
        ("0 0 ? * ?", "day of week", "        ^", "write *"),
        ("0 0 1 *", "day of week", "        ^", "minute hour"),
        ("0 0", "day of month", "    ^", "minute hour"),
        ("", "minute", "^", "minute hour"),
        ("0 0 1 * * 2027 *", None, "^" * 16, "minute hour"),
        ("@dayly", None, "^^^^^^", "did you mean @daily?"),
        ("@reboot", None, "^^^^^^^", "no machine"),
        ("*\t25 * * *", "hour", "  ^^", "0-23"),
    ],
)
def test_errors_name_the_field_and_point_at_it(text: str, field: str | None, caret: str, hint: str):
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    first, shown, below = str(caught.value).split("\n")
    assert caught.value.field == field
    assert first.startswith(f"{field} field: ") or field is None
    assert shown == "  " + text.replace("\t", " ")
    assert below == "  " + caret
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        (" 00  2 * * * ", "0 2 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("*/1 * ? jan-mar SUN,7", "* * * 1-3 0"),
        ("0/15 22-2 1,2,3 */3 FRI-MON", "0-45/15 0-2,22-23 1-3 */3 0-1,5-6"),
        ("*/20,5 * * 1,4,7,10 *", "*/20,5 * * */3 *"),
        ("0-59 * 1-31 1-12 *", "0-59 * 1-31 * *"),
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
    ],
)
def test_describe(text: str, words: str):
    assert parse_cron(text).describe() == words


def test_zone_prefix():
    assert split_zone("TZ=Europe/Berlin 0 2 * * *") == ("Europe/Berlin", "0 2 * * *")
    assert split_zone(" CRON_TZ=UTC\t@daily ") == ("UTC", "@daily")
    assert split_zone("0 2 * * *") == (None, "0 2 * * *")
