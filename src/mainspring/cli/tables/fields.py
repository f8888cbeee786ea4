"""Lines of a detail view: names, values and times."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any

from mainspring.cli.output import aligned
from mainspring.codec import encode
from mainspring.display.text import clean
from mainspring.display.times import both, distance, now


def pairs(*rows: tuple[str, Any]) -> str:
    """Format names and values as lines, without empty values."""
    return "\n".join(aligned([[name, clean(str(value))] for name, value in rows if value not in (None, "")]))


def instant_text(at: datetime | None, zone: tzinfo | None = None) -> str:
    return "" if at is None else f"{'  '.join(both([at], zone)[0])}  ({distance(at, now())})"


def json_text(value: Any) -> str:
    return encode(value).decode() if value else ""
