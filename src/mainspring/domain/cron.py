"""Cron expressions: read, put into one normal form, and matched against a wall clock with bit sets.

A parsed expression knows nothing of zones: it answers "the first matching wall time from here on", in whole
seconds as if the wall clock were UTC. What happens when wall times are skipped or repeated is decided by the
schedule that holds it.
"""

import difflib
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

DAY_S: Final = 86_400
SEARCH_YEARS: Final = 50
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MONTH_NAMES: Final = "January February March April May June July August September October November December"
_WEEKDAY_NAMES: Final = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday"
_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Blanks of any width would move the caret.
_BLANKS: Final = str.maketrans("\t\n\r\v\f", "     ")


class CronError(ValueError):
    """A wrong expression. `field` names the wrong part; `str()` shows it with a caret below."""

    def __init__(self, message: str, *, text: str, at: int, width: int, field: str | None, hint: str) -> None:
        where = f"{field} field: " if field else ""
        shown = text.translate(_BLANKS)
        super().__init__(f"{where}{message}\n  {shown}\n  {' ' * at}{'^' * max(width, 1)}")
        self.field = field
        self.hint = hint


class _Flaw(Exception):
    """What is wrong with one field, at an offset within it."""

    def __init__(self, kind: "_Kind", message: str, hint: str, at: int, width: int) -> None:
        super().__init__(message)
        self.kind, self.message, self.hint, self.at, self.width = kind, message, hint, at, width


class _Kind(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()
    wraps: bool = False
    is_day: bool = False

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def all_bits(self) -> int:
        return (1 << self.high + 1) - (1 << self.low)


class Field(NamedTuple):
    """One field: its values as bits, whether it has a leading `*`, and its normal form."""

    bits: int
    starred: bool
    text: str
    first: int
    last: int


_MINUTE = _Kind("minute", 0, 59)
_HOUR = _Kind("hour", 0, 23, wraps=True)
_DAY = _Kind("day of month", 1, 31, is_day=True)
_MONTH = _Kind("month", 1, 12, tuple(_MONTH_NAMES.split()), wraps=True)
_WEEKDAY = _Kind("day of week", 0, 6, tuple(_WEEKDAY_NAMES.split()), wraps=True, is_day=True)
_KINDS: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)
_ALL_DAYS, _ALL_MONTHS, _ALL_WEEKDAYS = _DAY.all_bits, _MONTH.all_bits, _WEEKDAY.all_bits
_ON_THE_MINUTE: Final = Field(bits=1, starred=False, text="0", first=0, last=0)
_SHAPE: Final = "minute hour day-of-month month day-of-week"


class Cron:
    """A parsed expression. Two expressions that mean the same have the same `text`."""

    __slots__ = (
        "_days", "_every_day", "_first_in_hour", "_first_second", "_first_time", "_hours", "_last_in_hour",
        "_last_second", "_last_time", "_minutes", "_months", "_need_both", "_seconds", "_week", "_weekdays",
        "days_starred", "fixed", "text",
    )  # fmt: skip

    def __init__(self, fields: Sequence[Field], *, day_and: bool) -> None:
        second, minute, hour, day, month, weekday = fields
        self.text = f"{minute.text} {hour.text} {day.text} {month.text} {weekday.text}"
        self.fixed = not (minute.starred or hour.starred)
        self.days_starred = day.starred or weekday.starred
        self._need_both = both = day_and or self.days_starred
        self._seconds, self._minutes, self._hours = second.bits, minute.bits, hour.bits
        self._days, self._months, self._weekdays = day.bits, month.bits, weekday.bits
        # The week repeated over a month's length: shifted by the weekday of the 1st it is a set of days.
        self._week = weekday.bits * 0b1_0000001_0000001_0000001_0000001_0000001
        any_day, any_weekday = day.bits == _ALL_DAYS, weekday.bits == _ALL_WEEKDAYS
        every_date = any_day and any_weekday if both else any_day or any_weekday
        self._every_day = every_date and month.bits == _ALL_MONTHS
        self._first_second, self._last_second = second.first, second.last
        self._first_in_hour = minute.first * 60 + second.first
        self._last_in_hour = minute.last * 60 + second.last
        self._first_time = hour.first * 3600 + self._first_in_hour
        self._last_time = hour.last * 3600 + self._last_in_hour

    @property
    def every_hour(self) -> bool:
        return self._hours == _HOUR.all_bits

    def next_wall(self, wall: int) -> int | None:
        """The first matching wall time at or after `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time <= self._last_time and (self._every_day or self._on(day)):
            return day * DAY_S + self._next_time(time)
        if self._every_day:
            return (day + 1) * DAY_S + self._first_time
        found = self._next_day(day + 1)
        return None if found is None else found * DAY_S + self._first_time

    def prev_wall(self, wall: int) -> int | None:
        """The last matching wall time at or before `wall`; None if there is none in 50 years."""
        day, time = divmod(wall, DAY_S)
        if time >= self._first_time and (self._every_day or self._on(day)):
            return day * DAY_S + self._prev_time(time)
        found = self._prev_day(day - 1)
        return None if found is None else found * DAY_S + self._last_time

    def describe(self) -> str:
        """The expression as words: "at 02:00 every day"."""
        time = _describe_time(_values(self._minutes), _values(self._hours))
        dates = _describe_dates(self._days, self._weekdays, self._months, need_both=self._need_both)
        if not dates.startswith("on ") and time.startswith("at ") and "every hour" not in time:
            dates = f"every day {dates}"
        return f"{time} {dates}".strip()

    def _next_time(self, time: int) -> int:
        """The first time of day at or after `time`, which must not be past the last one."""
        hour, rest = divmod(time, 3600)
        if self._hours >> hour & 1 and rest <= self._last_in_hour:
            minute, second = divmod(rest, 60)
            if self._minutes >> minute & 1 and second <= self._last_second:
                return time + _lowest(self._seconds >> second)
            minute += 1
            minute += _lowest(self._minutes >> minute)
            return hour * 3600 + minute * 60 + self._first_second
        hour += 1
        return (hour + _lowest(self._hours >> hour)) * 3600 + self._first_in_hour

    def _prev_time(self, time: int) -> int:
        """The last time of day at or before `time`, which must not be before the first one."""
        hour, rest = divmod(time, 3600)
        if self._hours >> hour & 1 and rest >= self._first_in_hour:
            minute, second = divmod(rest, 60)
            if self._minutes >> minute & 1 and second >= self._first_second:
                return time - second + _highest(self._seconds & (2 << second) - 1)
            return hour * 3600 + _highest(self._minutes & (1 << minute) - 1) * 60 + self._last_second
        return _highest(self._hours & (1 << hour) - 1) * 3600 + self._last_in_hour

    def _on(self, day: int) -> bool:
        when = date.fromordinal(day + _EPOCH_DAY)
        if not self._months >> when.month & 1:
            return False
        on_day, on_weekday = self._days >> when.day & 1, self._weekdays >> (day + 4) % 7 & 1
        return bool(on_day & on_weekday if self._need_both else on_day | on_weekday)

    def _next_day(self, day: int) -> int | None:
        when = date.fromordinal(day + _EPOCH_DAY)
        year, month, first = when.year, when.month, day - when.day + 1
        ahead = -1 << when.day
        for _ in range(SEARCH_YEARS * 12 + 1):
            length = _month_length(year, month)
            if self._months >> month & 1:
                days = self._days_in(first, length) & ahead
                if days:
                    return first + _lowest(days) - 1
            ahead, first = -1, first + length
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _prev_day(self, day: int) -> int | None:
        when = date.fromordinal(day + _EPOCH_DAY)
        year, month, first = when.year, when.month, day - when.day + 1
        behind = (2 << when.day) - 1
        for _ in range(SEARCH_YEARS * 12 + 1):
            if self._months >> month & 1:
                days = self._days_in(first, _month_length(year, month)) & behind
                if days:
                    return first + _highest(days) - 1
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            behind, first = -1, first - _month_length(year, month)
        return None

    def _days_in(self, first: int, length: int) -> int:
        """Matching days of the month that begins on day number `first`, bit n for the n-th."""
        on_weekday = self._week >> (first + 4) % 7 << 1
        days = self._days & on_weekday if self._need_both else self._days | on_weekday
        return days & (2 << length) - 2


@lru_cache(maxsize=16_384)
def parse_cron(text: str, *, day_and: bool = False) -> Cron:
    """Read a five-field expression or a macro such as `@daily`; raises `CronError`."""
    if text.strip().startswith("@"):
        return parse_cron(_expand(text), day_and=day_and)
    words = text.split()
    if len(words) != len(_KINDS):
        raise _wrong_count(text, len(words))
    try:
        fields = [_parse_field(word, position) for position, word in enumerate(words)]
    except _Flaw as flaw:
        raise _at_field(text, words, flaw) from None
    if words[2] == words[4] == "?":
        spot = text.rindex("?")
        hint = "write * in one of the two day fields"
        raise CronError(
            "only one day field may be ?", text=text, at=spot, width=1, field=_WEEKDAY.name, hint=hint
        )
    return Cron([_ON_THE_MINUTE, *fields], day_and=day_and)


def _at_field(text: str, words: list[str], flaw: _Flaw) -> CronError:
    at, wrong = 0, _KINDS.index(flaw.kind)
    for word in words[:wrong]:
        at = text.index(word, at) + len(word)
    at = text.index(words[wrong], at) + flaw.at
    return CronError(flaw.message, text=text, at=at, width=flaw.width, field=flaw.kind.name, hint=flaw.hint)


def split_zone(text: str) -> tuple[str | None, str]:
    """Take a `TZ=Zone` or `CRON_TZ=Zone` prefix off an expression."""
    stripped = text.strip()
    for prefix in ("TZ=", "CRON_TZ="):
        if stripped.startswith(prefix):
            words = stripped.removeprefix(prefix).split(None, 1)
            return (words or [""])[0], words[1] if len(words) > 1 else ""
    return None, text


def _expand(text: str) -> str:
    macro = text.strip().lower()
    if macro in _MACROS:
        return _MACROS[macro]
    hint = f"known are {', '.join(_MACROS)} and @every 10m"
    close = difflib.get_close_matches(macro, _MACROS, n=1)
    if macro == "@reboot":
        hint = "a schedule names times; there is no machine whose start could fire it"
    elif close:
        hint = f"did you mean {close[0]}?"
    at = len(text) - len(text.lstrip())
    raise CronError(
        f"unknown macro {macro}", text=text, at=at, width=len(text.strip()), field=None, hint=hint
    )


def _wrong_count(text: str, count: int) -> CronError:
    hint = f"write {_SHAPE}, for example `0 2 * * *`"
    if count < len(_KINDS):
        missing = _KINDS[count].name
        return CronError(
            f"{count} of {len(_KINDS)} fields given, this one is missing",
            text=text.rstrip(), at=len(text.rstrip()) + bool(text.strip()), width=1, field=missing, hint=hint,
        )  # fmt: skip
    message = f"{count} fields given, {len(_KINDS)} expected"
    return CronError(message, text=text, at=0, width=len(text), field=None, hint=hint)


@lru_cache(maxsize=4096)
def _parse_field(word: str, position: int) -> Field:
    kind = _KINDS[position]
    if word == "?" and kind.is_day:
        word = "*"
    bits, at = 0, 0
    for term in word.split(","):
        bits |= _parse_term(term, kind, at)
        at += len(term) + 1
    starred = word.startswith("*")
    if kind is _MONTH:  # here a leading * has no meaning beyond its values
        starred = any(bits == _stepped(kind, step) for step in range(1, kind.size))
    return Field(bits, starred, _normal(bits, starred, kind), _lowest(bits), _highest(bits))


def _parse_term(term: str, kind: _Kind, at: int) -> int:
    if not term:
        raise _Flaw(kind, "a value is missing", "remove the extra comma", at, 1)
    span, slash, step_text = term.partition("/")
    step = _parse_step(step_text, kind, at + len(span) + 1) if slash else 1
    if span == "*":
        return _stepped(kind, step)
    if span == "?":
        where = "stand alone" if kind.is_day else "be used in the day fields only"
        raise _Flaw(kind, f"? can {where}", "write *", at, len(term))
    low_text, dash, high_text = span.partition("-")
    low = _parse_value(low_text, kind, at)
    if slash and not dash and not low_text.isdecimal():
        hint = f"write the first value as a number, {low}/{step}, or give a range"
        raise _Flaw(kind, f"a step cannot follow the name {low_text}", hint, at, len(term))
    if not dash:
        low = low % 7 if kind is _WEEKDAY else low
        return _bits(kind, range(low, kind.high + 1, step)) if slash else _bits(kind, [low])
    high = _parse_value(high_text, kind, at + len(low_text) + 1)
    if kind is _WEEKDAY and low == 7:
        low, high = 0, high % 7
    if low > high:
        if not kind.wraps:
            hint = f"write {low}-{kind.high},{kind.low}-{high}"
            raise _Flaw(kind, f"the range {span} runs backwards", hint, at, len(span))
        high += kind.size
    return _bits(kind, range(low, high + 1, step))


def _parse_step(text: str, kind: _Kind, at: int) -> int:
    if not _is_number(text):
        raise _Flaw(kind, f"the step {text!r} is not a number", "write for example */5", at, len(text))
    step = int(text)
    if not 0 < step < kind.size:
        hint = f"a step is 1 to {kind.size - 1}; for a single value write it alone"
        raise _Flaw(kind, f"the step {step} does not fit {kind.size} values", hint, at, len(text))
    return step


def _parse_value(text: str, kind: _Kind, at: int) -> int:
    upper = text.upper()
    for number, name in enumerate(kind.words, start=kind.low):
        if upper == name[:3].upper():
            return number
        if upper == name.upper():
            raise _Flaw(kind, f"{text} is written in full", f"write {upper[:3]}", at, len(text))
    allowed = f"{kind.low}-{7 if kind is _WEEKDAY else kind.high}"
    names = f" or {kind.words[0][:3].upper()}-{kind.words[-1][:3].upper()}" if kind.words else ""
    if not _is_number(text):
        what = f"{text!r} is not a value" if text else "a value is missing"
        raise _Flaw(kind, what, f"write {allowed}{names}", at, len(text))
    number = int(text)
    if not kind.low <= number <= kind.high and not (kind is _WEEKDAY and number == 7):
        raise _Flaw(kind, f"{number} is out of range", f"allowed are {allowed}{names}", at, len(text))
    return number


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _stepped(kind: _Kind, step: int) -> int:
    return _bits(kind, range(kind.low, kind.high + 1, step))


def _bits(kind: _Kind, values: Iterable[int]) -> int:
    """Values as bits; those past the end wrap around, so that weekday 7 is Sunday."""
    return sum({1 << (value - kind.low) % kind.size + kind.low for value in values})


def _normal(bits: int, starred: bool, kind: _Kind) -> str:
    if not starred:
        return ",".join(_runs(_values(bits)))
    step = next(n for n in range(1, kind.size) if _stepped(kind, n) & ~bits == 0)
    rest = _runs(_values(bits & ~_stepped(kind, step)))
    return ",".join(["*" if step == 1 else f"*/{step}", *rest])


def _runs(values: list[int]) -> list[str]:
    """Values as terms: `1-5` for a run, `0-45/15` if all of them are evenly spaced."""
    if len(values) > 2 and (step := _spacing(values)) > 1:
        return [f"{values[0]}-{values[-1]}/{step}"]
    return [str(low) if low == high else f"{low}-{high}" for low, high in _stretches(values)]


def _spacing(values: list[int]) -> int:
    """The distance between neighbours if it is the same everywhere, else 0."""
    gaps = {after - before for before, after in pairwise(values)}
    return gaps.pop() if len(gaps) == 1 else 0


def _stretches(values: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def _values(bits: int) -> list[int]:
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1


def _month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _describe_time(minutes: list[int], hours: list[int]) -> str:
    span = _hour_span(hours)
    every = _even_step(minutes, 60)
    if every:
        unit = "minute" if every == 1 else f"{every} minutes"
        if span == (0, 23):
            return f"every {unit}"
        if span:
            return f"every {unit} between {span[0]:02}:00 and {span[1]:02}:59"
        return f"every {unit} in the hours {_join([f'{hour:02}' for hour in hours])}"
    if len(minutes) == 1:
        minute = minutes[0]
        hourly = _even_step(hours, 24)
        if hourly:
            unit = "hour" if hourly == 1 else f"{hourly} hours"
            return f"every {unit}" + (f" at minute {minute}" if minute else "")
        if span and len(hours) > 2:
            return f"every hour from {span[0]:02}:{minute:02} to {span[1]:02}:{minute:02}"
    if len(minutes) * len(hours) <= 6:
        return f"at {_join([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    past = f"at minute{'' if len(minutes) == 1 else 's'} {_numbers(minutes)}"
    return f"{past} of every hour" if span == (0, 23) else f"{past} of the hours {_numbers(hours)}"


def _describe_dates(days: int, weekdays: int, months: int, *, need_both: bool) -> str:
    any_day, any_weekday = days == _ALL_DAYS, weekdays == _ALL_WEEKDAYS
    on_days = f"on day{'' if days & days - 1 == 0 else 's'} {_numbers(_values(days))} of the month"
    week = _weekday_words(weekdays)
    if (any_day and any_weekday) or (not need_both and (any_day or any_weekday)):
        phrase = ""
    elif any_day:
        phrase = f"on {week}"
    elif any_weekday:
        phrase = on_days
    elif need_both:
        phrase = f"{on_days}, only if it is {week.replace(' and ', ' or ')}"
    else:
        phrase = f"{on_days} or on {week}" + ("," if months != _ALL_MONTHS else "")
    if months != _ALL_MONTHS:
        phrase += f" in {_numbers(_values(months), dict(enumerate(_MONTH.words, start=1)))}"
    return phrase.strip()


def _weekday_words(weekdays: int) -> str:
    from_monday = sorted((value - 1) % 7 for value in _values(weekdays))
    return _numbers(from_monday, {(n - 1) % 7: name for n, name in enumerate(_WEEKDAY.words)})


def _even_step(values: list[int], size: int) -> int:
    """n if the values are 0, n, 2n ... evenly around the clock, else 0."""
    step = size // len(values)
    return step if len(values) > 1 and values == list(range(0, size, step)) and size % step == 0 else 0


def _hour_span(hours: list[int]) -> tuple[int, int] | None:
    """First and last hour if they are without a break, also past midnight."""
    stretches = _stretches(hours)
    if len(stretches) == 1:
        return stretches[0]
    if len(stretches) == 2 and stretches[0][0] == 0 and stretches[1][1] == 23:
        return stretches[1][0], stretches[0][1]
    return None


def _numbers(values: list[int], names: dict[int, str] | None = None) -> str:
    def name(value: int) -> str:
        return names[value] if names else str(value)

    if not names and len(values) > 4 and (step := _spacing(values)) > 1:
        return f"{values[0]} to {values[-1]} in steps of {step}"
    words: list[str] = []
    for low, high in _stretches(values):
        run = high - low > 1
        words += [f"{name(low)} to {name(high)}"] if run else map(name, range(low, high + 1))
    return _join(words)


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
