"""Times and dates of a schedule as words: "every 15 minutes between 09:00 and 17:59 on Monday to Friday"."""

from collections.abc import Sequence

from mainspring.domain.schedule.cron_fields import (
    ALL_DAYS,
    ALL_HOURS,
    ALL_MINUTES,
    ALL_MONTHS,
    ALL_WEEKDAYS,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    LastDay,
    NearestWeekday,
    NthWeekday,
    Special,
    spacing,
    stretches,
    values,
)

_LISTED_TIMES = 6
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


def describe_times(seconds: int, minutes: int, hours: int) -> str:
    if seconds == 1:
        return _minutes_and_hours(values(minutes), values(hours))
    if seconds.bit_count() * minutes.bit_count() * hours.bit_count() <= _LISTED_TIMES:
        times = [(h, m, s) for h in values(hours) for m in values(minutes) for s in values(seconds)]
        return f"at {join([f'{h:02}:{m:02}:{s:02}' for h, m, s in times])}"
    step = _even_step(values(seconds), 60)
    how_often = "every second" if step == 1 else f"every {step} seconds"
    listed = step == 0
    if listed:
        how_often = f"at second{_s(seconds)} {numbers(values(seconds))}"
    if minutes != ALL_MINUTES:
        how_often += f" of minute{_s(minutes)} {numbers(values(minutes))}"
        return f"{how_often} of {_which_hours(hours)}"
    span = _hour_span(values(hours))
    how_often += " of every minute" if listed else ""
    if hours == ALL_HOURS:
        return how_often
    if span:
        return f"{how_often} between {span[0]:02}:00 and {span[1]:02}:59"
    return f"{how_often} of {_which_hours(hours)}"


def describe_dates(
    days: int,
    day_specials: Sequence[Special],
    weekdays: int,
    weekday_specials: Sequence[Special],
    months: int,
    *,
    need_both: bool,
) -> str:
    """Which dates: "on day 13 of the month or on Friday in June"; nothing if it is every day."""
    any_day, any_weekday = days == ALL_DAYS, weekdays == ALL_WEEKDAYS
    on_days, week = _days_of_month(days, day_specials), _days_of_week(weekdays, weekday_specials)
    if (any_day and any_weekday) or (not need_both and (any_day or any_weekday)):
        phrase = ""
    elif any_day:
        phrase = f"on {week}"
    elif any_weekday:
        phrase = on_days
    elif need_both:
        phrase = f"{on_days}, only if it is {week.replace(' and ', ' or ')}"
    else:
        phrase = f"{on_days} or on {week}" + ("," if months != ALL_MONTHS else "")
    if months != ALL_MONTHS:
        phrase += f" in {numbers(values(months), dict(enumerate(MONTH_NAMES, start=1)))}"
    return phrase.strip()


def describe_clock(time: int) -> str:
    """A time of day in seconds as 09:30, or 09:30:15."""
    return f"{time // 3600:02}:{time // 60 % 60:02}" + (f":{time % 60:02}" if time % 60 else "")


def numbers(found: list[int], names: dict[int, str] | None = None) -> str:
    """A list of numbers, or of what they stand for: "1, 4 and 7 to 9"."""

    def name(value: int) -> str:
        return names[value] if names else str(value)

    if not names and len(found) > 4 and (step := spacing(found)) > 1:
        return f"{found[0]} to {found[-1]} in steps of {step}"
    words: list[str] = []
    for low, high in stretches(found):
        run = high - low > 1
        words += [f"{name(low)} to {name(high)}"] if run else map(name, range(low, high + 1))
    return join(words)


def join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th; 11th."""
    ending = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _minutes_and_hours(minutes: list[int], hours: list[int]) -> str:
    span = _hour_span(hours)
    every = _even_step(minutes, 60)
    if every:
        unit = "minute" if every == 1 else f"{every} minutes"
        if span == (0, 23):
            return f"every {unit}"
        if span:
            return f"every {unit} between {span[0]:02}:00 and {span[1]:02}:59"
        return f"every {unit} in the hours {join([f'{hour:02}' for hour in hours])}"
    if len(minutes) == 1:
        minute = minutes[0]
        hourly = _even_step(hours, 24)
        if hourly:
            unit = "hour" if hourly == 1 else f"{hourly} hours"
            return f"every {unit}" + (f" at minute {minute}" if minute else "")
        if span and len(hours) > 2:
            return f"every hour from {span[0]:02}:{minute:02} to {span[1]:02}:{minute:02}"
    if len(minutes) * len(hours) <= _LISTED_TIMES:
        return f"at {join([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    past = f"at minute{'' if len(minutes) == 1 else 's'} {numbers(minutes)}"
    return f"{past} of every hour" if span == (0, 23) else f"{past} of the hours {numbers(hours)}"


def _which_hours(hours: int) -> str:
    if hours == ALL_HOURS:
        return "every hour"
    return f"hour {values(hours)[0]}" if hours.bit_count() == 1 else f"the hours {numbers(values(hours))}"


def _days_of_month(days: int, specials: Sequence[Special]) -> str:
    words = [f"day{_s(days)} {numbers(values(days))}"] if days else []
    return f"on {join([*words, *map(_special_words, specials)])} of the month" if words or specials else ""


def _days_of_week(weekdays: int, specials: Sequence[Special]) -> str:
    from_monday = sorted((value - 1) % 7 for value in values(weekdays))
    words = [numbers(from_monday, {(n - 1) % 7: name for n, name in enumerate(WEEKDAY_NAMES)})] if from_monday else []
    return join([*words, *(f"{_special_words(special)} of the month" for special in specials)])


def _special_words(special: Special) -> str:
    if isinstance(special, LastDay):
        return f"the {ordinal(special.before + 1)}-last day" if special.before else "the last day"
    if isinstance(special, NthWeekday):
        which = "last" if special.number is None else _ORDINALS[special.number - 1]
        return f"the {which} {WEEKDAY_NAMES[special.weekday]}"
    assert isinstance(special, NearestWeekday)
    return "the last weekday" if special.day is None else f"the weekday nearest day {special.day}"


def _even_step(found: list[int], size: int) -> int:
    """n if the values are 0, n, 2n ... evenly around the clock, else 0."""
    step = size // len(found)
    return step if len(found) > 1 and found == list(range(0, size, step)) and size % step == 0 else 0


def _hour_span(hours: list[int]) -> tuple[int, int] | None:
    """First and last hour if they are without a break, also past midnight."""
    runs = stretches(hours)
    if len(runs) == 1:
        return runs[0]
    if len(runs) == 2 and runs[0][0] == 0 and runs[1][1] == 23:
        return runs[1][0], runs[0][1]
    return None


def _s(bits: int) -> str:
    return "" if bits.bit_count() == 1 else "s"
