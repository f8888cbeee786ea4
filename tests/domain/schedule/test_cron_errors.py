"""A hundred wrong expressions: each names the field, points at the place, and says what was expected."""

import pytest

from mainspring.domain.schedule.cron import CronError, parse_cron

# expression, field, what the caret is below, what the hint says
WRONG: list[tuple[str, str | None, str, str]] = [
    # second (six fields)
    ("60 0 0 * * *", "second", "60", "0-59"),
    ("-1 0 0 * * *", "second", "-", "0-59"),
    ("*/60 0 0 * * *", "second", "60", "1 to 59"),
    ("*/0 0 0 * * *", "second", "0", "1 to 59"),
    ("30-10 0 0 * * *", "second", "30-10", "30-59,0-10"),
    ("L 0 0 * * *", "second", "L", "0-59"),
    ("? 0 0 * * *", "second", "?", "write *"),
    ("1,,2 0 0 * * *", "second", ",", "comma"),
    ("MON 0 0 * * *", "second", "MON", "0-59"),
    ("5x 0 0 * * *", "second", "5x", "0-59"),
    # minute
    ("60 * * * *", "minute", "60", "0-59"),
    ("61 2 * * *", "minute", "61", "0-59"),
    ("*/60 * * * *", "minute", "60", "1 to 59"),
    ("*/-5 * * * *", "minute", "-5", "*/5"),
    ("*/ * * * *", "minute", " ", "*/5"),
    ("/5 * * * *", "minute", "/", "0-59"),
    ("**/5 * * * *", "minute", "**", "0-59"),
    ("*5 * * * *", "minute", "*5", "0-59"),
    ("5-* * * * *", "minute", "*", "0-59"),
    ("1-2-3 * * * *", "minute", "2-3", "0-59"),
    ("50-10 * * * *", "minute", "50-10", "50-59,0-10"),
    ("1;2 * * * *", "minute", "1;2", "0-59"),
    ("1.5 * * * *", "minute", "1.5", "0-59"),
    ("five * * * *", "minute", "five", "0-59"),
    ("W * * * *", "minute", "W", "0-59"),
    ("5L * * * *", "minute", "5L", "0-59"),
    ("5# * * * *", "minute", "5#", "0-59"),
    ("+5 * * * *", "minute", "+5", "0-59"),
    ("00005 * * * *", "minute", "00005", "0-59"),
    ("5, * * * *", "minute", " ", "comma"),
    (",5 * * * *", "minute", ",", "comma"),
    # hour
    ("0 24 * * *", "hour", "24", "0-23"),
    ("0 2am * * *", "hour", "2am", "0-23"),
    ("0 2:30 * * *", "hour", "2:30", "0-23"),
    ("0 */24 * * *", "hour", "24", "1 to 23"),
    ("0 1-25 * * *", "hour", "25", "0-23"),
    ("0 ? * * *", "hour", "?", "write *"),
    ("0 LW * * *", "hour", "LW", "0-23"),
    ("0 JAN * * *", "hour", "JAN", "0-23"),
    # day of month
    ("0 0 0 * *", "day of month", "0", "1-31"),
    ("0 0 32 * *", "day of month", "32", "1-31"),
    ("0 0 1,32 * *", "day of month", "32", "1-31"),
    ("0 0 */31 * *", "day of month", "31", "1 to 30"),
    ("0 0 25-5 * *", "day of month", "25-5", "25-31,1-5"),
    ("0 0 MON * *", "day of month", "MON", "1-31"),
    ("0 0 ?,1 * *", "day of month", "?", "write *"),
    ("0 0 ?/2 * *", "day of month", "?/2", "write *"),
    ("0 0 L-0 * *", "day of month", "L-0", "L-1 to L-30"),
    ("0 0 L-31 * *", "day of month", "L-31", "L-1 to L-30"),
    ("0 0 L- * *", "day of month", "L-", "L-3"),
    ("0 0 L3 * *", "day of month", "L3", "L-3"),
    ("0 0 3L * *", "day of month", "3L", "L-3"),
    ("0 0 L-3W * *", "day of month", "L-3W", "LW"),
    ("0 0 WL * *", "day of month", "WL", "LW"),
    ("0 0 W * *", "day of month", "W", "15W"),
    ("0 0 0W * *", "day of month", "0", "1-31"),
    ("0 0 32W * *", "day of month", "32", "1-31"),
    ("0 0 1-5W * *", "day of month", "1-5W", "1W,2W"),
    ("0 0 *W * *", "day of month", "*W", "15W"),
    ("0 0 15W/2 * *", "day of month", "15W/2", "15W alone"),
    ("0 0 L/2 * *", "day of month", "L/2", "L alone"),
    ("0 0 1#1 * *", "day of month", "1#1", "day of week"),
    ("0 0 1,L,33 * *", "day of month", "33", "1-31"),
    # month
    ("0 0 * 0 *", "month", "0", "JAN-DEC"),
    ("0 0 * 13 *", "month", "13", "JAN-DEC"),
    ("0 0 * */12 *", "month", "12", "1 to 11"),
    ("0 0 * JANUARY *", "month", "JANUARY", "write JAN"),
    ("0 0 * JAN-JUNY *", "month", "JUNY", "JAN-DEC"),
    ("0 0 * JAN/2 *", "month", "JAN/2", "1/2"),
    ("0 0 * L *", "month", "L", "JAN-DEC"),
    ("0 0 * MON *", "month", "MON", "JAN-DEC"),
    ("0 0 * ? *", "month", "?", "write *"),
    ("0 0 * september *", "month", "september", "write SEP"),
    # day of week
    ("0 0 * * 8", "day of week", "8", "0-7 or SUN-SAT"),
    ("0 0 * * MONDAY", "day of week", "MONDAY", "write MON"),
    ("0 0 * * MO", "day of week", "MO", "SUN-SAT"),
    ("0 0 * * MON/2", "day of week", "MON/2", "1/2"),
    ("0 0 * * */8", "day of week", "8", "1 to 7"),
    ("0 0 * * L", "day of week", "L", "FRI#L"),
    ("0 0 * * 8L", "day of week", "8L", "SUN-SAT"),
    ("0 0 * * 12L", "day of week", "12L", "SUN-SAT"),
    ("0 0 * * FRIL", "day of week", "FRIL", "FRI#L"),
    ("0 0 * * MON#0", "day of week", "0", "1st to the 5th"),
    ("0 0 * * MON#6", "day of week", "6", "1st to the 5th"),
    ("0 0 * * MON#", "day of week", " ", "1st to the 5th"),
    ("0 0 * * #1", "day of week", "#1", "MON#1"),
    ("0 0 * * 8#1", "day of week", "8", "0-7"),
    ("0 0 * * MON-FRI#1", "day of week", "MON-FRI", "MON#1,TUE#1"),
    ("0 0 * * MON#1/2", "day of week", "MON#1/2", "alone"),
    ("0 0 * * 15W", "day of week", "15W", "15W there"),
    ("0 0 * * MON#1#2", "day of week", "1#2", "1st to the 5th"),
    ("0 0 ? * ?", "day of week", "?", "write *"),
    # H
    ("H * * * *", "minute", "H", "job"),
    ("0 H(0-5) * * *", "hour", "H(0-5)", "job"),
    ("H/60 * * * *", "minute", "60", "1 to 59"),
    ("H(0-29)/30 * * * *", "minute", "H(0-29)", "1 to 29"),
    ("H(30-10) * * * *", "minute", "30-10", "30-59"),
    ("H(5) * * * *", "minute", "H(5)", "H(0-29)"),
    ("H( * * * *", "minute", "H(", "H(0-29)"),
    ("Hx * * * *", "minute", "HX", "H(0-29)"),
    ("0 0 H(29-31) * *", "day of month", "H(29-31)", "28"),
    ("0 0 H/28 * *", "day of month", "H", "1 to 27"),
    ("0 0 H(1-40) * *", "day of month", "40", "1-31"),
    # the whole
    ("", "minute", " ", "minute hour"),
    ("0 0", "day of month", " ", "minute hour"),
    ("0 0 1 *", "day of week", " ", "minute hour"),
    ("0 0 0 1 1 ? 2027", None, "0 0 0 1 1 ? 2027", "start_at"),
    ("0 0 0 1 1 ? 2027 x", None, "0 0 0 1 1 ? 2027 x", "minute hour"),
    ("@dayly", None, "@dayly", "did you mean @daily?"),
    ("@reboot", None, "@reboot", "no machine"),
    ("@", None, "@", "@every 10m"),
]  # fmt: skip


def test_there_are_a_hundred_of_them():
    assert len({text for text, *_ in WRONG}) == len(WRONG) >= 100


@pytest.mark.requirement(1)
@pytest.mark.parametrize(("text", "field", "under", "hint"), WRONG)
def test_wrong(text: str, field: str | None, under: str, hint: str):
    with pytest.raises(CronError) as caught:
        parse_cron(text)
    first, shown, below = str(caught.value).split("\n")
    assert caught.value.field == field
    assert first.startswith(f"{field} field: ") or field is None
    assert shown == f"  {text}"
    at = below.index("^")
    assert f"{shown:<60}"[at : len(below)].upper() == under.upper()
    assert hint in caught.value.hint
