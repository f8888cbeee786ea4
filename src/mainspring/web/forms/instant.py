"""Parse times in form fields: +10m, or a date and time, in UTC unless it has an offset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mainspring.display.times import parse_future_instant, parse_instant
from mainspring.domain.errors import invalid


def parse_time(text: str, pointer: str) -> datetime | None:
    """Parse a time; None if empty."""
    return _read(parse_instant, text, pointer)


def parse_future(text: str, pointer: str) -> datetime | None:
    """Parse a time; a duration counts from now. None if empty."""
    return _read(parse_future_instant, text, pointer)


def _read(how: Callable[[str], datetime], text: str, pointer: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        return how(text.strip())
    except (ValueError, OverflowError):
        hint = "such as +10m, 2027-01-01T09:00 (in UTC) or 2027-01-01T09:00+01:00"
        raise invalid(pointer, f"{text.strip()!r} is not a time", hint=hint) from None
