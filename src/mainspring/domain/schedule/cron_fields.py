"""The fields of a cron expression as values: bit sets, and days that depend on the month they are in."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

ALL_MINUTES: Final = (1 << 60) - 1
ALL_HOURS: Final = (1 << 24) - 1
ALL_DAYS: Final = (1 << 32) - 2
ALL_MONTHS: Final = (1 << 13) - 2
ALL_WEEKDAYS: Final = (1 << 7) - 1
SATURDAY: Final = 6
MONTH_NAMES: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAY_NAMES: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`, or so many days before it: `L-3`."""

    before: int = 0


@dataclass(frozen=True, slots=True)
class NearestWeekday:
    """`15W`: the Monday to Friday nearest to a day, within the month. Without a day it is `LW`."""

    day: int | None = None


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`MON#1`; without a number the last one of the month: `FRI#L`."""

    weekday: int
    number: int | None = None


Special = LastDay | NearestWeekday | NthWeekday


class Field:
    """One field: its values as bits, whether it has a leading `*`, its normal form, and days by rule."""

    __slots__ = ("bits", "first", "last", "special", "starred", "text")

    def __init__(self, bits: int, starred: bool, text: str, special: tuple[Special, ...] = ()) -> None:
        self.bits, self.starred, self.text, self.special = bits, starred, text, special
        self.first, self.last = lowest(bits), highest(bits)


def lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def highest(bits: int) -> int:
    return bits.bit_length() - 1


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def values(bits: int) -> list[int]:
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def stretches(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def spacing(numbers: list[int]) -> int:
    """The distance between neighbours if it is the same everywhere, else 0."""
    gaps = {after - before for before, after in pairwise(numbers)}
    return gaps.pop() if len(gaps) == 1 else 0
