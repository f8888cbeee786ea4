"""What fires when, found by walking every minute: slow, obvious, and without a line of the engine.

It asks `zoneinfo` minute by minute what the wall clock shows, and applies the rules to that list. Since 1980 no
clock was changed within a minute, so seconds are added to the minutes that match.
"""

import calendar
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
LIMITS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MINUTE = timedelta(minutes=1)
MARGIN = timedelta(hours=26)

Shown = tuple[tuple[datetime, datetime], ...]


def expand(word: str, position: int) -> set[int]:
    """The plain values of one field; terms with L, W or # name days and are left out."""
    low, high = LIMITS[position]
    names = {4: MONTHS, 5: WEEKDAYS}.get(position, [])
    found: set[int] = set()
    for term in word.lower().split(","):
        span, _, step = term.partition("/")
        if is_special(span, names):
            continue
        ends = [str(low), str(high)] if span in ("*", "?") else span.split("-")
        numbers = [names.index(end) + low if end in names else int(end) for end in ends]
        if len(numbers) == 1:
            numbers.append(high if step else numbers[0])
        value, stop, walked = *numbers, 0
        while True:  # one value at a time, around the end of the field if need be
            if walked % int(step or 1) == 0:
                found.add(0 if position == 5 and value == 7 else value)
            if value == stop:
                break
            value, walked = (low if value >= high and stop < value else value + 1), walked + 1
    return found


def is_special(term: str, names: list[str]) -> bool:
    return any(letter in term for letter in "lw#") and not all(end in names for end in term.split("-"))


def named_days(word: str, position: int, year: int, month: int) -> set[date]:
    """The days that terms with L, W or # name in a month."""
    names = {5: WEEKDAYS}.get(position, [])
    length = calendar.monthrange(year, month)[1]
    days = [date(year, month, day) for day in range(1, length + 1)]
    found: set[date] = set()
    for term in word.lower().split(","):
        if is_special(term, names):
            found |= {day for day in [named_day(term, names, days)] if day is not None}
    return found


def named_day(term: str, names: list[str], days: list[date]) -> date | None:
    working = [day for day in days if day.weekday() < 5]
    if names:
        which, _, number = term.partition("#") if "#" in term else (term[:-1], "", "l")
        weekday = names.index(which) if which in names else int(which) % 7
        matching = [day for day in days if day.isoweekday() % 7 == weekday]
        if number == "l":
            return matching[-1]
        return matching[int(number) - 1] if int(number) <= len(matching) else None
    if term == "lw":
        return working[-1]
    if term.endswith("w"):
        wanted = int(term[:-1])
        if wanted > len(days):
            return None
        return min(working, key=lambda day: abs(day.day - wanted))
    back = int(term[2:] or 0)
    return days[-1 - back] if back < len(days) else None


class Oracle:
    def __init__(self, text: str, zone: str, *, gap: str, overlap_hour: str, day_and: bool) -> None:
        self.words = text.split() if len(text.split()) == 6 else ["0", *text.split()]
        self.seconds, self.minutes, self.hours, self.days, self.months, self.weekdays = (
            expand(word, position) for position, word in enumerate(self.words)
        )
        self.zone_name, self.zone = zone, ZoneInfo(zone)
        self.gap, self.overlap_hour, self.day_and = gap, overlap_hour, day_and
        self.known: dict[date, bool] = {}

    def on(self, day: date) -> bool:
        if day not in self.known:
            self.known[day] = self._on(day)
        return self.known[day]

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days or day in named_days(self.words[3], 3, day.year, day.month)
        by_weekday = day.isoweekday() % 7 in self.weekdays or day in named_days(self.words[5], 5, day.year, day.month)
        if self.day_and or self.words[3][0] in "*?" or self.words[5][0] in "*?":
            return by_day and by_weekday
        return by_day or by_weekday

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.on(wall.date())

    @property
    def wildcard(self) -> bool:
        return self.words[1].startswith("*") or self.words[2].startswith("*")

    def fires(self, start: datetime, end: datetime) -> list[datetime]:
        """Fires after `start` up to `end`, both whole minutes in UTC."""
        shown = walk(self.zone_name, start - MARGIN, end + MARGIN)
        minutes = self._passes(shown)
        found = {minute + timedelta(seconds=second) for minute in minutes for second in self.seconds}
        if not self.wildcard:
            found |= self._made_up(shown)
        return sorted(instant for instant in found if start < instant <= end)

    def fires_by_date(self, first: date, days: int) -> list[datetime]:
        """Fires whose wall time is on one of `days` dates, found date by date; fires made up are not among them."""
        found: set[datetime] = set()
        for number in range(days):
            day = first + timedelta(days=number)
            for hour in sorted(self.hours) if self.on(day) else ():
                for minute in self.minutes:
                    found |= self._instants(datetime.combine(day, time(hour, minute)))
        return sorted(minute + timedelta(seconds=second) for minute in found for second in self.seconds)

    def _instants(self, wall: datetime) -> set[datetime]:
        both = [wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        real = sorted({at for at in both if at.astimezone(self.zone).replace(tzinfo=None, fold=0) == wall})
        return set(real[self._wanted])

    @property
    def _wanted(self) -> slice:
        which = "both" if self.wildcard else self.overlap_hour
        return {"first": slice(0, 1), "second": slice(-1, None), "both": slice(None)}[which]

    def _passes(self, shown: Shown) -> set[datetime]:
        times: dict[datetime, list[datetime]] = {}
        for instant, wall in shown:
            if self.matches(wall):
                times.setdefault(wall, []).append(instant)
        return {instant for instants in times.values() for instant in instants[self._wanted]}

    def _made_up(self, shown: Shown) -> set[datetime]:
        found: set[datetime] = set()
        before = shown[0][1]
        for instant, wall in shown:
            missing = before + MINUTE
            if self.gap == "next_valid" and wall - missing < timedelta(days=1):
                while missing < wall:
                    if self.matches(missing):
                        found.add(instant)
                    missing += MINUTE
            before = wall
        return found


@lru_cache(maxsize=64)
def walk(zone: str, start: datetime, end: datetime) -> Shown:
    """Every minute with what the wall clock shows."""
    info, shown = ZoneInfo(zone), []
    while start <= end:
        shown.append((start, start.astimezone(info).replace(tzinfo=None, fold=0)))
        start += MINUTE
    return tuple(shown)


@lru_cache(maxsize=4096)
def changes(zone: str, year: int) -> list[datetime]:
    """The first minute of each new offset of `zone` in `year`."""
    info = ZoneInfo(zone)
    found, before = [], datetime(year, 1, 1, tzinfo=UTC)
    for _ in range(2 * 366):
        after = before + timedelta(hours=12)
        if after.astimezone(info).utcoffset() != before.astimezone(info).utcoffset():
            minute = before
            while minute.astimezone(info).utcoffset() == before.astimezone(info).utcoffset():
                minute += MINUTE
            found.append(minute)
        before = after
    return found
