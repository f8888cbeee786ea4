"""Instants and durations as people read them. `now` comes from the system clock: it is for display only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

import click

from mainspring.clock import SystemClock, instant
from mainspring.domain.duration import parse_duration

CLOCK = "%Y-%m-%d %H:%M:%S"


def now() -> datetime:
    return instant(SystemClock().now_ms())


def local(at: datetime | None) -> str:
    """The time on this machine's wall clock, or a dash."""
    return "–" if at is None else at.astimezone().strftime(CLOCK)


def utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime(CLOCK + " UTC")


def both(instants: Iterable[datetime], zone: tzinfo | None = None) -> list[list[str]]:
    """Each as wall time in `zone` (this machine's by default) and in UTC; only in UTC if that is the same."""
    there = [at.astimezone(zone) for at in instants]
    if all(at.utcoffset() == timedelta(0) for at in there):
        return [[utc(at)] for at in there]
    return [[at.strftime(CLOCK + " %Z"), utc(at)] for at in there]


def span(ms: float | None) -> str:
    """A duration with the precision that matters: 6 ms, 1.2 s, 4 min 5 s, 3 h 20 min, 2 d 4 h."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}".removesuffix(".0") + " s"
    whole = round(ms / 1000)
    for large, small, unit, rest in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            more = whole % large // small
            return f"{whole // large} {unit}" + (f" {more} {rest}" if more else "")
    raise AssertionError(ms)


def distance(at: datetime | None, now: datetime) -> str:
    """How far away an instant is: "in 5 s", "3 min 20 s ago"."""
    if at is None:
        return "–"
    ms = (at - now).total_seconds() * 1000
    return f"in {span(ms)}" if ms >= 0 else f"{span(-ms)} ago"


def when(text: str) -> datetime:
    """An instant on the command line: RFC 3339, UTC without an offset, or `+10m` from now in full seconds."""
    try:
        if text.startswith("+"):
            later = now() + timedelta(seconds=parse_duration(text[1:]), microseconds=999_999)
            return later.replace(microsecond=0)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time: write 2027-03-01T09:00Z, or +10m from now") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def until(text: str) -> datetime:
    """An instant to come: a time, or how long from now (`2h`, `+2h`)."""
    try:
        parse_duration(text)
    except ValueError:
        return when(text)
    return when(f"+{text}")


def seconds(text: str | float) -> float:
    """A duration on the command line: 90, 10m, 1h30m or PT3H. A default of endless seconds stays as it is."""
    if text == math.inf:
        return math.inf
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
