"""The text of an RFC 5545 recurrence rule: read strictly, put into one normal form, and said in words."""

import difflib
import re
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, cast

from dateutil.rrule import weekday as Weekday

from mainspring.domain.schedule.cron_fields import MONTH_NAMES
from mainspring.domain.schedule.describe import describe_clock, join, ordinal

Frequency = Literal[0, 1, 2, 3, 4, 5, 6]
FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
_UNITS: Final = ("year", "month", "week", "day", "hour", "minute", "second")
_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY_NAMES: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LIMITS: Final = {
    "BYSECOND": (0, 59), "BYMINUTE": (0, 59), "BYHOUR": (0, 23), "BYMONTHDAY": (-31, 31), "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53), "BYMONTH": (1, 12), "BYSETPOS": (-366, 366),
}  # fmt: skip
_PARTS: Final = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_LIMITS)
_MOST_COUNTED: Final = 100_000
_NUMBER = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_BYDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_UNTIL = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z)?)?", re.ASCII)


class RuleError(ValueError):
    """A wrong rule: the message names the part, `hint` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Rule(NamedTuple):
    """A rule that makes sense; `by` holds its BY parts under dateutil's names."""

    frequency: Frequency
    interval: int
    most: int | None
    until: int | None
    week_start: int
    by: dict[str, tuple[Any, ...]]

    def explicit(self, start: datetime) -> dict[str, tuple[Any, ...]]:
        """All BY parts, also those that come from DTSTART when the rule leaves them out."""
        parts = dict(self.by)
        if not parts.keys() & {"byweekno", "byyearday", "bymonthday", "byweekday"}:
            if self.frequency == 0:
                parts.setdefault("bymonth", (start.month,))
            if self.frequency <= 1:
                parts["bymonthday"] = (start.day,)
            elif self.frequency == 2:
                parts["byweekday"] = (Weekday(start.weekday()),)
        for level, (name, value) in enumerate(
            (("byhour", start.hour), ("byminute", start.minute), ("bysecond", start.second)), start=4
        ):
            if self.frequency < level:
                parts.setdefault(name, (value,))
        return parts

    def describe(self, start: datetime | None) -> str:
        """The rule as words: "every 2 weeks on Monday at 09:00"; without a start only what it says itself."""
        return _describe(self, self.by if start is None else self.explicit(start)) + (
            f", {self.most} times" if self.most is not None else ""
        )


def parse_rule(text: str) -> tuple[Rule, str | None]:
    """Read `FREQ=MONTHLY;BYDAY=1MO`, with or without `RRULE:`; UNTIL comes back as text, for it needs a zone."""
    values = _split(text)
    if "FREQ" not in values:
        raise RuleError("FREQ is missing", "write for example FREQ=MONTHLY;BYDAY=1MO")
    name = values.pop("FREQ")
    if name not in FREQUENCIES:
        raise RuleError(f"FREQ={name} is not known", f"write one of {', '.join(FREQUENCIES)}")
    frequency = cast(Frequency, FREQUENCIES.index(name))
    until = _read_until(values.pop("UNTIL")) if "UNTIL" in values else None
    if until is not None and "COUNT" in values:
        raise RuleError("COUNT and UNTIL exclude each other", "keep one of the two")
    interval = _positive(values, "INTERVAL", 10_000_000) or 1
    count = _positive(values, "COUNT", _MOST_COUNTED)
    week_start = _week_start(values.pop("WKST", "MO"))
    by = {part: _numbers(part, values[part]) for part in _LIMITS if part in values}
    days = _weekdays(values["BYDAY"]) if "BYDAY" in values else ()
    _check(frequency, by, days)
    parts: dict[str, tuple[Any, ...]] = {part.lower(): tuple(sorted(set(found))) for part, found in by.items()}
    if days:
        parts["byweekday"] = tuple(Weekday(day, number) for number, day in sorted(set(days), key=_day_order))
    return Rule(frequency, interval, count, None, week_start, parts), until


def rule_text(rule: Rule) -> str:
    """The normal form, without UNTIL: the same rule always gives the same text."""
    parts = [f"FREQ={FREQUENCIES[rule.frequency]}"]
    parts += [f"INTERVAL={rule.interval}"] if rule.interval != 1 else []
    parts += [f"COUNT={rule.most}"] if rule.most is not None else []
    parts += [f"WKST={_DAYS[rule.week_start]}"] if rule.week_start else []
    for name, found in rule.by.items():
        spelled = [f"{day.n or ''}{_DAYS[day.weekday]}" for day in found] if name == "byweekday" else map(str, found)
        parts.append(f"{'BYDAY' if name == 'byweekday' else name.upper()}={','.join(spelled)}")
    return ";".join(parts)


def _split(text: str) -> dict[str, str]:
    plain = text.strip().upper().removeprefix("RRULE:")
    if re.search(r"\s|DTSTART|EXDATE|RDATE|EXRULE", plain):
        hint = "give the start as dtstart and exceptions as exdates, beside the rule"
        raise RuleError("a rule is one line of NAME=VALUE parts", hint)
    values: dict[str, str] = {}
    for part in plain.removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise RuleError(f"{part!r} is not NAME=VALUE", "write for example FREQ=MONTHLY;BYDAY=1MO")
        if name in values:
            raise RuleError(f"{name} is given twice", "keep one; several values are separated by commas")
        if name not in _PARTS:
            close = difflib.get_close_matches(name, _PARTS, n=1)
            raise RuleError(
                f"unknown part {name}", f"did you mean {close[0]}?" if close else f"known: {', '.join(_PARTS)}"
            )
        values[name] = value
    return values


def _read_until(text: str) -> str:
    found = _UNTIL.fullmatch(text)
    if found is None:
        raise RuleError(f"UNTIL={text} is not a time", "write UNTIL=20271231T235959, or a date alone: 20271231")
    year, month, day, hour, minute, second, zulu = found.groups()
    return f"{year}-{month}-{day}" + (f"T{hour}:{minute}:{second}{zulu or ''}" if hour else "")


def _positive(values: dict[str, str], name: str, most: int) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise RuleError(f"{name}={text} is not possible", f"{name} is 1 to {most:,}")
    return int(text)


def _week_start(text: str) -> int:
    if text not in _DAYS:
        raise RuleError(f"WKST={text} is not a weekday", f"write one of {', '.join(_DAYS)}")
    return _DAYS.index(text)


def _numbers(name: str, text: str) -> list[int]:
    low, high = _LIMITS[name]
    found = []
    for word in text.split(","):
        number = int(word) if _NUMBER.fullmatch(word) else None
        if number is None or not low <= number <= high or (low < 0 and number == 0):
            allowed = f"{low} to {high}" if low >= 0 else f"1 to {high}, or -1 to {low} from the end"
            raise RuleError(f"{name}={word} is not possible", f"{name} takes {allowed}")
        found.append(number)
    return found


def _weekdays(text: str) -> list[tuple[int | None, int]]:
    found = []
    for word in text.split(","):
        shape = _BYDAY.fullmatch(word)
        if shape is None or (shape[1] is not None and not 1 <= abs(int(shape[1])) <= 53):
            raise RuleError(f"BYDAY={word} is not a weekday", f"write {', '.join(_DAYS)}, or 1MO, -1FR")
        found.append((None if shape[1] is None else int(shape[1]), _DAYS.index(shape[2])))
    return found


def _check(frequency: int, by: dict[str, list[int]], days: list[tuple[int | None, int]] | tuple[()]) -> None:
    """Combinations that RFC 5545 forbids, or that can never match."""
    name = FREQUENCIES[frequency]
    if any(number is not None for number, _ in days):
        if frequency > 1:
            raise RuleError(f"a numbered BYDAY means nothing with FREQ={name}", "use FREQ=MONTHLY or FREQ=YEARLY")
        if "BYWEEKNO" in by:
            raise RuleError("a numbered BYDAY means nothing beside BYWEEKNO", "remove the number or BYWEEKNO")
        if frequency == 1 and any(number is not None and abs(number) > 5 for number, _ in days):
            raise RuleError("a month has no sixth of a weekday", "number BYDAY from 1 to 5, or -1 to -5")
    if "BYWEEKNO" in by and frequency != 0:
        raise RuleError(f"BYWEEKNO means nothing with FREQ={name}", "use FREQ=YEARLY")
    if "BYWEEKNO" in by and not days:
        raise RuleError("BYWEEKNO alone does not say which day", "add BYDAY, for example BYDAY=MO")
    if "BYYEARDAY" in by and frequency in (1, 2, 3):
        raise RuleError(f"BYYEARDAY means nothing with FREQ={name}", "use FREQ=YEARLY")
    if "BYMONTHDAY" in by and frequency == 2:
        raise RuleError("BYMONTHDAY means nothing with FREQ=WEEKLY", "use FREQ=MONTHLY or FREQ=DAILY")
    if "BYSETPOS" in by and len(by) == 1 and not days:
        raise RuleError("BYSETPOS chooses from other BY parts", "add one, for example BYDAY=MO,TU,WE,TH,FR")
    if "BYSETPOS" in by and frequency >= 4:
        size = 1
        for part, level in (("BYMINUTE", 5), ("BYSECOND", 6)):
            size *= len(set(by.get(part, [0]))) if frequency < level else 1
        if min(map(abs, by["BYSETPOS"])) > size:
            raise RuleError(f"BYSETPOS never matches: {size} to choose from", f"write 1 to {size}")


def _day_order(day: tuple[int | None, int]) -> tuple[int, int]:
    return day[0] or 0, day[1]


def _describe(rule: Rule, parts: dict[str, tuple[Any, ...]]) -> str:
    unit = _UNITS[rule.frequency]
    words = [f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"]
    if "bymonth" in parts:
        words.append(f"in {join([MONTH_NAMES[month - 1] for month in parts['bymonth']])}")
    if "byweekno" in parts:
        words.append(f"in week {join([_counted(week) for week in parts['byweekno']])}")
    if "byyearday" in parts:
        words.append(f"on day {join([_counted(day) for day in parts['byyearday']])} of the year")
    if "bymonthday" in parts:
        words.append(f"on day {join([_counted(day) for day in parts['bymonthday']])} of the month")
    if "byweekday" in parts:
        only = "only " if "bymonthday" in parts or "byyearday" in parts else ""
        words.append(f"{only}on {join([_weekday_words(day) for day in parts['byweekday']])}")
    words += _describe_times(rule.frequency, parts)
    if "bysetpos" in parts:
        words.append(f"(only the {join([_place(n) for n in parts['bysetpos']])} of them in each {unit})")
    return " ".join(words)


def _describe_times(frequency: int, parts: dict[str, tuple[Any, ...]]) -> list[str]:
    hours, minutes, seconds = (parts.get(name, ()) for name in ("byhour", "byminute", "bysecond"))
    if frequency < 4 and 1 <= len(hours) * len(minutes) * len(seconds) <= 6:
        times = sorted(h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds)
        return [f"at {join([describe_clock(time) for time in times])}"]
    found = []
    if seconds and seconds != (0,):
        found.append(f"at second {join([str(n) for n in seconds])}")
    if minutes and (minutes != (0,) or frequency != 4):
        found.append(f"at minute {join([str(n) for n in minutes])}")
    if hours:
        found.append(f"in the hours {join([str(n) for n in hours])}")
    return found


def _counted(number: int) -> str:
    return str(number) if number > 0 else f"{number} (from the end)"


def _place(number: int) -> str:
    if number > 0:
        return ordinal(number)
    return "last" if number == -1 else f"{ordinal(-number)}-last"


def _weekday_words(day: Any) -> str:
    name = _DAY_NAMES[day.weekday]
    return name if day.n is None else f"the {_place(day.n)} {name}"
