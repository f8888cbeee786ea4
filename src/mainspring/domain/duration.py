"""Durations: parses and formats `10m`, `1h30m`, `PT3H` and plain seconds."""

import math
import re
from functools import lru_cache

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_UNIT_NAMES = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}
_NUMBER = r"\d+(?:\.\d+)?"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_UNITS = re.compile(
    rf"(?:({_NUMBER})w)?(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?(?:({_NUMBER})ms)?",
    re.ASCII,
)
_ISO = re.compile(
    rf"p(?:({_NUMBER})y)?(?:({_NUMBER})m)?(?:({_NUMBER})w)?(?:({_NUMBER})d)?"
    rf"(t(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?)?",
    re.ASCII,
)
_CALENDAR = re.compile(rf"(?:{_NUMBER}\s*(?:months?|mon|mo|years?|y))+", re.ASCII)
_MONTHS = re.compile(r"(?:(\d{1,4})\s*(?:years?|y)\s*)?(?:(\d{1,4})\s*(?:months?|mon|mo))?", re.ASCII)
_ISO_MONTHS = re.compile(r"p(?:(\d{1,4})y)?(?:(\d{1,4})m)?", re.ASCII)
MAX_CHARS = 100
"""A longer text is no duration. The bound also keeps the cache of parsed texts small."""
MAX_S = 1000 * 366 * 86_400.0
"""Longer durations are refused where they are written: an instant so far away cannot be stored."""
_HOW = "write seconds (90), units from large to small (1h30m, 10m, 500ms) or ISO 8601 (PT3H)"
_NO_MONTHS = "months and years differ in length: use days (30d), or a cron schedule such as `0 9 1 * *`"


def parse_duration(text: str | int | float) -> float:
    """Seconds meant by `text`: 5, "5", "10m", "1h30m", "500ms", "2d", "PT3H" or "P1DT2H"."""
    if isinstance(text, str) and len(text) > MAX_CHARS:
        raise ValueError(f"{text[:20]!r}… is not a duration: it has more than {MAX_CHARS} characters")
    return _parse(text)


@lru_cache(maxsize=4096, typed=True)  # typed: 1 is a second, True is an error
def _parse(text: str | int | float) -> float:
    if isinstance(text, bool):
        raise ValueError(f"{text} is not a duration: {_HOW}")
    if isinstance(text, (int, float)):
        return _sensible(_as_float(text), text)
    plain = text.strip().lower()
    if _PLAIN.fullmatch(plain):
        return _sensible(float(plain), text)
    if plain.startswith("p"):
        return _sensible(_parse_iso(plain, text), text)
    if _CALENDAR.fullmatch(plain):
        raise ValueError(f"{text!r}: {_NO_MONTHS}")
    found = _UNITS.fullmatch(plain)
    if not plain or found is None:
        raise ValueError(f"{text!r} is not a duration: {_HOW}")
    parts = zip(found.groups(), ("w", "d", "h", "m", "s", "ms"), strict=True)
    return _sensible(sum(float(n) * _UNIT_S[unit] for n, unit in parts if n), text)


def optional_seconds(text: str | int | float | None) -> float | None:
    """Like `parse_duration`; None stays None."""
    return None if text is None else parse_duration(text)


def calendar_days(text: str | int | float) -> int | None:
    """Whole days if `text` names nothing but days or weeks ("2d", "1w", "P1D"), else None."""
    found = re.fullmatch(r"p?(?:(\d{1,9})w)?(?:(\d{1,9})d)?", str(text).strip().lower(), re.ASCII)
    if found is None or not any(found.groups()):
        return None
    return int(found[1] or 0) * 7 + int(found[2] or 0)


def calendar_months(text: str | int | float) -> int | None:
    """Months if `text` names nothing but months or years ("1mo", "2 months", "P1M", "1y"), else None."""
    plain = str(text).strip().lower()
    found = _ISO_MONTHS.fullmatch(plain) or _MONTHS.fullmatch(plain)
    if found is None or not any(found.groups()):
        return None
    return int(found[1] or 0) * 12 + int(found[2] or 0)


def format_duration(seconds: float) -> str:
    """The shortest usual spelling: "10m", "1h30m", "500ms"; `parse_duration` reads it back."""
    return "".join(f"{count}{unit}" for count, unit in _split(seconds)) or "0s"


def spell_duration(seconds: float) -> str:
    """The duration in words: "5 seconds", "1 hour 30 minutes"; a single unit of one is just "hour"."""
    parts = _split(seconds)
    if len(parts) == 1 and parts[0][0] == 1:
        return _UNIT_NAMES[parts[0][1]]
    words = [f"{count} {_UNIT_NAMES[unit]}{'' if count == 1 else 's'}" for count, unit in parts]
    return " ".join(words) or "0 seconds"


def _split(seconds: float) -> list[tuple[int, str]]:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{seconds} is not a duration")
    rest = round(seconds * 1000)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, round(_UNIT_S[unit] * 1000))
        if count:
            parts.append((count, unit))
    return parts


def _parse_iso(plain: str, text: str) -> float:
    found = _ISO.fullmatch(plain)
    if found is None or not any(found.groups()) or found[5] == "t":
        raise ValueError(f"{text!r} is not an ISO 8601 duration: write for example PT3H, PT10M or P1DT2H")
    years, months, weeks, days, _, hours, minutes, seconds = found.groups()
    if years or months:
        raise ValueError(f"{text!r}: {_NO_MONTHS}")
    parts = zip((weeks, days, hours, minutes, seconds), ("w", "d", "h", "m", "s"), strict=True)
    return sum(float(n) * _UNIT_S[unit] for n, unit in parts if n)


def _as_float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _sensible(seconds: float, text: str | int | float) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"{text!r} is not a duration: it must be a finite number, 0 or more")
    return seconds
