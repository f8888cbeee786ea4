"""What fires when, found by walking every minute: slow, obvious, and without a line of the engine.

It asks `zoneinfo` minute by minute what the wall clock shows, and applies the rules to that list.
"""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MINUTE = timedelta(minutes=1)
MARGIN = timedelta(hours=26)


def expand(word: str, position: int) -> set[int]:
    """The values of one field."""
    low, high = LIMITS[position]
    names = {3: MONTHS, 4: WEEKDAYS}.get(position, [])
    found: set[int] = set()
    for term in word.lower().split(","):
        span, _, step = term.partition("/")
        ends = [str(low), str(high)] if span in ("*", "?") else span.split("-")
        numbers = [names.index(end) + low if end in names else int(end) for end in ends]
        if len(numbers) == 1:
            numbers.append(high if step else numbers[0])
        value, stop, walked = *numbers, 0
        while True:  # one value at a time, around the end of the field if need be
            if walked % int(step or 1) == 0:
                found.add(0 if position == 4 and value == 7 else value)
            if value == stop:
                break
            value, walked = (low if value >= high and stop < value else value + 1), walked + 1
    return found


class Oracle:
    def __init__(self, text: str, zone: str, *, gap: str, overlap_hour: str, day_and: bool) -> None:
        self.words = text.split()
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            expand(word, position) for position, word in enumerate(self.words)
        )
        self.zone, self.gap, self.overlap_hour, self.day_and = ZoneInfo(zone), gap, overlap_hour, day_and

    def on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self.day_and or self.words[2][0] in "*?" or self.words[4][0] in "*?":
            return by_day and by_weekday
        return by_day or by_weekday

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and wall.second == 0 and self.on(wall.date())

    def fires(self, start: datetime, end: datetime) -> list[datetime]:
        """Fires after `start` up to `end`, both whole minutes in UTC."""
        shown: list[tuple[datetime, datetime]] = []
        instant = start - MARGIN
        while instant <= end + MARGIN:
            shown.append((instant, instant.astimezone(self.zone).replace(tzinfo=None, fold=0)))
            instant += MINUTE
        if self.words[0].startswith("*") or self.words[1].startswith("*"):
            found = {instant for instant, wall in shown if self.matches(wall)}
        else:
            found = self._passes(shown) | self._made_up(shown)
        return sorted(instant for instant in found if start < instant <= end)

    def _passes(self, shown: list[tuple[datetime, datetime]]) -> set[datetime]:
        times: dict[datetime, list[datetime]] = {}
        for instant, wall in shown:
            if self.matches(wall):
                times.setdefault(wall, []).append(instant)
        wanted = {"first": slice(0, 1), "second": slice(-1, None), "both": slice(None)}[self.overlap_hour]
        return {instant for instants in times.values() for instant in instants[wanted]}

    def _made_up(self, shown: list[tuple[datetime, datetime]]) -> set[datetime]:
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
