"""Prices of worker time, windows in which they differ, and what executions cost by them. Pure.

An execution costs the price of a slot and of each resource that its job requests, for as long as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainspring.domain.errors import Invalid
from mainspring.domain.placement.resources import NAME
from mainspring.domain.schedule.zone import ZoneError, check_zone, load_zone

CURRENCY = "currency"
SLOT = "slot"
MAX_PRICES = 50
MAX_PRICE = 1e9
MS_PER_HOUR = 3_600_000
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour: of a slot, of a core, of a GiB of memory or disk, and of one of any other resource."""

    slot: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    currency: str = ""

    @property
    def known(self) -> bool:
        """Whether anything has a price."""
        return bool(self.slot or self.resources)

    def of(self, duration_ms: float, resources: Mapping[str, int]) -> float:
        """The cost of a duration with these resources, as `parse_amounts` reads them."""
        hourly = self.slot + sum(
            price * units(name, resources[name]) for name, price in self.resources.items() if name in resources
        )
        return duration_ms / MS_PER_HOUR * hourly


NO_PRICES = Prices()


def units(name: str, amount: int) -> float:
    """An amount in the unit that has the price: cores, GiB, or a count."""
    if name == "cpu":
        return amount / 1000
    return amount / GIB if name in ("memory", "disk") else float(amount)


def read_prices(text: str) -> Prices:
    """Read prices written as `slot=0.01,cpu=0.03,memory=0.004,gpu=2.5,currency=EUR`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MAX_PRICES:
        raise Invalid(f"prices: at most {MAX_PRICES} entries (got {len(parts)})")
    slot, resources, currency = 0.0, {}, ""
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not NAME.match(name):
            raise Invalid(f"prices: {part[:60]!r} is not a price; write RESOURCE=PRICE, such as cpu=0.03")
        if name == CURRENCY:
            if not (value.isascii() and value.isalpha() and len(value) == 3):
                raise Invalid(f"prices: {value[:20]!r} is not a currency; write three letters, such as EUR")
            currency = value.upper()
        elif name == SLOT:
            slot = _price(name, value)
        else:
            resources[name] = _price(name, value)
    return Prices(slot, resources, currency)


def _price(name: str, value: str) -> float:
    try:
        price = float(value)
    except ValueError:
        price = -1.0
    if not 0 <= price <= MAX_PRICE:
        raise Invalid(f"prices: {name} costs {value[:20]!r}; write a number per hour from 0 to {MAX_PRICE:.0f}")
    return price


# Windows with other prices ------------------------------------------------------------------------------

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
TIMEZONE = "timezone"
MAX_WINDOWS = 50
SAMPLES = 12
"""Of an hour, whose price factor is their mean."""
_WINDOW = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+)?(?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d)=(?P<factor>[\d.]{1,12})\Z",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PriceWindow:
    """Minutes of some days of the week in which prices are multiplied by `factor`. It may end on the next day."""

    days: frozenset[int]
    begin_min: int
    end_min: int
    factor: float

    def contains(self, day: int, minute: int) -> bool:
        if self.begin_min < self.end_min:
            return day in self.days and self.begin_min <= minute < self.end_min
        return (day in self.days and minute >= self.begin_min) or ((day - 1) % 7 in self.days and minute < self.end_min)


@dataclass(frozen=True, slots=True)
class PriceWindows:
    """When prices differ, on the wall clock of a zone. The first window that matches counts; elsewhere, 1."""

    windows: tuple[PriceWindow, ...] = ()
    zone: str = "UTC"

    def factor(self, at_ms: int) -> float:
        if not self.windows:
            return 1.0
        day, second = divmod(load_zone(self.zone).wall_at(at_ms // 1000), 86_400)
        # 1 January 1970 was a Thursday.
        matching = (w.factor for w in self.windows if w.contains((day + 3) % 7, second // 60))
        return next(matching, 1.0)

    def hours(self, begin_ms: int, count: int) -> dict[int, float]:
        """The mean factor of those of `count` hours in which it is not 1."""
        if not self.windows:
            return {}
        found = {}
        for at_ms in range(begin_ms, begin_ms + count * MS_PER_HOUR, MS_PER_HOUR):
            mean = sum(self.factors(at_ms, SAMPLES, MS_PER_HOUR // SAMPLES)) / SAMPLES
            if mean != 1:
                found[at_ms] = mean
        return found

    def factors(self, begin_ms: int, count: int, step_ms: int) -> list[float]:
        """The factor at the beginning of each of `count` steps."""
        return [self.factor(begin_ms + n * step_ms) for n in range(count)]


ALWAYS = PriceWindows()


def read_price_windows(text: str) -> PriceWindows:
    """Read windows written as `timezone=Europe/Berlin; 22:00-06:00=0.4; sat-sun 00:00-24:00=0.5`."""
    parts = [part.strip().lower() for part in text.split(";") if part.strip()]
    if len(parts) > MAX_WINDOWS:
        raise Invalid(f"price windows: at most {MAX_WINDOWS} entries (got {len(parts)})")
    zone, windows = "UTC", []
    for part, written in zip(parts, (p.strip() for p in text.split(";") if p.strip()), strict=True):
        if part.startswith(f"{TIMEZONE}="):
            zone = written.partition("=")[2].strip()
            try:
                check_zone(zone)
            except ZoneError as error:
                raise Invalid(f"price windows: {error}; {error.hint}") from None
        else:
            windows.append(_price_window(part))
    return PriceWindows(tuple(windows), zone)


def _price_window(text: str) -> PriceWindow:
    found = _WINDOW.match(text)
    if found is None:
        raise Invalid(
            f"price windows: {text[:60]!r} is not a window; write [DAYS ]HH:MM-HH:MM=FACTOR, such as 22:00-06:00=0.4"
        )
    first, last = found["first"] or DAYS[0], found["last"] or found["first"] or DAYS[-1]
    if first not in DAYS or last not in DAYS:
        raise Invalid(f"price windows: the days are {', '.join(DAYS)} (got {text[:60]!r})")
    begin, end = (int(t[:2]) * 60 + int(t[3:]) for t in (found["begin"], found["end"]))
    if begin >= 1440 or end > 1440 or begin == end or max(found["begin"][3:], found["end"][3:]) >= "60":
        raise Invalid(f"price windows: {text[:60]!r} has no times from 00:00 to 24:00 that differ")
    low, high = DAYS.index(first), DAYS.index(last)
    days = frozenset((low + n) % 7 for n in range((high - low) % 7 + 1))
    return PriceWindow(days, begin, end, _price("the factor", found["factor"]))
