"""Parse times and durations of the command line; an invalid value is a usage error."""

from __future__ import annotations

import math
from datetime import datetime

import click

from mainspring.display.times import parse_future_instant, parse_instant
from mainspring.domain.duration import parse_duration


def when(text: str) -> datetime:
    """Parse a time: RFC 3339, or `+10m` from now."""
    try:
        return parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def until(text: str) -> datetime:
    """Parse a time, or a duration from now: `2h`, `+2h`."""
    try:
        return parse_future_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def seconds(text: str | float) -> float:
    """Parse a duration: 90, 10m, 1h30m or PT3H. An infinite default stays infinite."""
    if text == math.inf:
        return math.inf
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
