"""An instant as people type it: +10m, or a time, in UTC unless it says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mainspring.display.times import parse_future_instant, parse_instant
from mainspring.domain.errors import invalid


def moment(text: str, pointer: str) -> datetime | None:
    """None if nothing was typed."""
    return _read(parse_instant, text, pointer)


def moment_to_come(text: str, pointer: str) -> datetime | None:
    """The same, and a length of time is counted from now."""
    return _read(parse_future_instant, text, pointer)


def _read(how: Callable[[str], datetime], text: str, pointer: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        return how(text.strip())
    except (ValueError, OverflowError):
        hint = "such as +10m, 2027-01-01T09:00 (in UTC) or 2027-01-01T09:00+01:00"
        raise invalid(pointer, f"{text.strip()!r} is not a time", hint=hint) from None
