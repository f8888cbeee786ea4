"""The times of day that a cron expression names, as bit sets."""

from mainspring.domain.schedule.cron_fields import Field, highest, lowest


class Times:
    """Seconds, minutes and hours; times of day are in seconds. Expressions that differ in their dates share it."""

    __slots__ = ("_first_in_hour", "_first_second", "_last_in_hour", "_last_second", "fields", "first", "fixed",
                 "hours", "last", "minutes", "seconds")  # fmt: skip

    def __init__(self, second: Field, minute: Field, hour: Field) -> None:
        self.fields = (second, minute, hour)
        self.fixed = not (minute.starred or hour.starred)
        self.seconds, self.minutes, self.hours = second.bits, minute.bits, hour.bits
        self._first_second, self._last_second = second.first, second.last
        self._first_in_hour = first = minute.first * 60 + second.first
        self._last_in_hour = last = minute.last * 60 + second.last
        self.first, self.last = hour.first * 3600 + first, hour.last * 3600 + last

    def at_or_after(self, time: int) -> int:
        """The first one from `time` on, which must not be past the last."""
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1 and rest <= self._last_in_hour:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1 and second <= self._last_second:
                return time + lowest(self.seconds >> second)
            minute += 1
            minute += lowest(self.minutes >> minute)
            return hour * 3600 + minute * 60 + self._first_second
        hour += 1
        return (hour + lowest(self.hours >> hour)) * 3600 + self._first_in_hour

    def at_or_before(self, time: int) -> int:
        """The last one up to `time`, which must not be before the first."""
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1 and rest >= self._first_in_hour:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1 and second >= self._first_second:
                return time - second + highest(self.seconds & (2 << second) - 1)
            return hour * 3600 + highest(self.minutes & (1 << minute) - 1) * 60 + self._last_second
        return highest(self.hours & (1 << hour) - 1) * 3600 + self._last_in_hour

    def count_before(self, time: int) -> int:
        """How many come before `time`."""
        hour, rest = divmod(time, 3600)
        minute, second = divmod(rest, 60)
        minutes = (self.hours & (1 << hour) - 1).bit_count() * self.minutes.bit_count()
        if self.hours >> hour & 1:
            minutes += (self.minutes & (1 << minute) - 1).bit_count()
            if self.minutes >> minute & 1:
                return minutes * self.seconds.bit_count() + (self.seconds & (1 << second) - 1).bit_count()
        return minutes * self.seconds.bit_count()
