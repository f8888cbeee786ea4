"""Formats and parses instants and durations for the CLI and the web UI.

`now` reads the system clock: use it for display only.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from mainspring.clock import SystemClock, instant
from mainspring.domain.duration import parse_duration

CLOCK = "%Y-%m-%d %H:%M:%S"


def now() -> datetime:
    return instant(SystemClock().now_ms())


def local(at: datetime | None) -> str:
    """The time on this machine's wall clock, or a dash."""
    return "–" if at is None else at.astimezone().strftime(CLOCK)


def local_exact(at: datetime | None) -> str:
    """The same with milliseconds, for timelines."""
    return "–" if at is None else f"{local(at)}.{at.microsecond // 1000:03d}"


def utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime(CLOCK + " UTC")


def both(instants: Iterable[datetime], zone: tzinfo | None = None) -> list[list[str]]:
    """Each as wall time of this machine, of `zone`, and in UTC, without clocks that show the same as another."""
    known = list(instants)
    seen = [[timedelta(0)] * len(known)]
    columns = []
    for clock in (None, *([] if zone is None else [zone])):
        there = [at.astimezone(clock) for at in known]
        offsets = [at.utcoffset() or timedelta(0) for at in there]
        if offsets not in seen:
            seen.append(offsets)
            columns.append([at.strftime(CLOCK + " %Z") for at in there])
    return [list(row) for row in zip(*columns, [utc(at) for at in known], strict=True)]


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


def parse_instant(text: str, zone: tzinfo = UTC) -> datetime:
    """Parse RFC 3339 (in `zone` without an offset), or `+10m` from now, rounded up to a full second."""
    try:
        if text.startswith("+"):
            later = now() + timedelta(seconds=parse_duration(text[1:]), microseconds=999_999)
            return later.replace(microsecond=0)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time: write 2027-03-01T09:00Z, or +10m from now") from None
    return at.replace(tzinfo=zone) if at.tzinfo is None else at


def parse_future_instant(text: str, zone: tzinfo = UTC) -> datetime:
    """Parse an instant, or a duration from now (`2h` and `+2h` mean the same)."""
    try:
        parse_duration(text)
    except ValueError:
        return parse_instant(text, zone)
    return parse_instant(f"+{text}")
