"""Parse times in form fields: +10m, or a date and time, in the reader's zone unless it has an offset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

from mainspring.display.times import parse_future_instant, parse_instant
from mainspring.domain.errors import invalid

Parse = Callable[[str, tzinfo], datetime]


def parse_time(text: str, pointer: str, zone: str) -> datetime | None:
    """Parse a time; None if empty."""
    return _read(parse_instant, text, pointer, zone)


def parse_future(text: str, pointer: str, zone: str) -> datetime | None:
    """Parse a time; a duration counts from now. None if empty."""
    return _read(parse_future_instant, text, pointer, zone)


def _read(how: Parse, text: str, pointer: str, zone: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        return how(text.strip(), ZoneInfo(zone))
    except (ValueError, OverflowError):
        hint = f"such as +10m, 2027-01-01T09:00 (in {zone}) or 2027-01-01T09:00+01:00"
        raise invalid(pointer, f"{text.strip()!r} is not a time", hint=hint) from None
