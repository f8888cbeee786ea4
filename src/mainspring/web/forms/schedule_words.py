"""Read schedules in the words with which the UI describes them: `every 10 minutes`, `at 02:00 on Monday to Friday`."""

from __future__ import annotations

import re
from typing import Any

MAX_CHARS = 200
_UNITS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w", "month": "mo", "year": "y"}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ZONE = re.compile(r"\((?P<zone>[A-Za-z0-9_+/-]{1,64})\)$", re.ASCII)
_EVERY = re.compile(rf"every (?:(?P<n>\d{{1,6}}) )?(?P<unit>{'|'.join(_UNITS)})s?", re.ASCII)
_MINUTE = re.compile(r"every hour at minute (?P<minute>\d{1,2})", re.ASCII)
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)"
_DAILY = re.compile(rf"at {_TIME} every day|every day at {_TIME.replace('hour', 'h').replace('minute', 'm')}", re.ASCII)
_DAY = f"(?:{'|'.join(_DAYS)})"
_WEEKLY = re.compile(rf"at {_TIME} on (?P<days>{_DAY}(?:(?: to |, | and |, and ){_DAY}){{0,6}})", re.ASCII)
_MONTHLY = re.compile(rf"at {_TIME} on day (?P<day>\d{{1,2}}) of the month", re.ASCII)


def read_words(text: str) -> dict[str, Any] | None:
    """Return the schedule that a sentence describes, or None if the text is not such a sentence."""
    if len(text) > MAX_CHARS:
        return None
    zone = _ZONE.search(text)
    words = " ".join(text[: zone.start()].split() if zone else text.split()).lower()
    found = _schedule(words)
    if found is not None and zone:
        found["timezone"] = zone["zone"]
    return found


def _schedule(words: str) -> dict[str, Any] | None:
    if found := _EVERY.fullmatch(words):
        return {"every": f"{int(found['n'] or 1)}{_UNITS[found['unit']]}"}
    if found := _MINUTE.fullmatch(words):
        return {"cron": f"{int(found['minute'])} * * * *"}
    if found := _DAILY.fullmatch(words):
        return {"cron": f"{int(found['minute'] or found['m'])} {int(found['hour'] or found['h'])} * * *"}
    if found := _WEEKLY.fullmatch(words):
        days = re.sub(_DAY, lambda day: day[0][:3].upper(), found["days"])
        return {"cron": f"{_at(found)} * * {re.sub(r',? and |, ', ',', days.replace(' to ', '-'))}"}
    if found := _MONTHLY.fullmatch(words):
        return {"cron": f"{_at(found)} {int(found['day'])} * *"}
    return None


def _at(found: re.Match[str]) -> str:
    return f"{int(found['minute'])} {int(found['hour'])}"
