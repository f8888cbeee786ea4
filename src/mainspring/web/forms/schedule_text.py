"""Convert schedules between the text of one field, the JSON of the API, and a command line."""

from __future__ import annotations

import re
import shlex
from typing import Any

import msgspec

from mainspring.codec import MAX_DEPTH, depth
from mainspring.domain.errors import invalid
from mainspring.domain.schedule.cron import split_zone
from mainspring.domain.schedule.schedule import ScheduleSpecs
from mainspring.web.forms.schedule_words import read_words

EXAMPLES = (
    "0 2 * * *",
    "*/15 9-17 * * MON-FRI",
    "@daily",
    "every 10m",
    "every 10 minutes",
    "at 06:30 on Monday to Friday",
    "DTSTART:20270104T090000 RRULE:FREQ=MONTHLY;BYDAY=1MO",
    '{"cron": "30 2 * * *", "overlap_hour": "both"}',
)
MAX_EXPRESSION = 10_000
_PROPERTY = re.compile(r"(?P<name>[A-Z-]+)(?P<params>(?:;[A-Z-]+=[^:;]*)*):(?P<value>\S*)", re.IGNORECASE)
_BASIC = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FLAGS = {"cron": "--cron", "every": "--every", "at": "--at", "rrule": "--rrule", "dtstart": "--dtstart"}


def read(text: str, zone: str) -> Any:
    """Parse a text into the JSON of a schedule, or a list of them. A zone in the text takes precedence over `zone`."""
    text = text.strip()
    if len(text) > MAX_EXPRESSION:
        raise invalid("/schedule", f"the schedule has more than {MAX_EXPRESSION:,} characters", hint="shorten it")
    if text.startswith(("{", "[")):
        return _from_json(text, zone)
    schedule = _from_words(text)
    if zone and "timezone" not in schedule and split_zone(schedule.get("cron", ""))[0] is None:
        schedule["timezone"] = zone
    return schedule


def spell(schedule: ScheduleSpecs | None) -> tuple[str, str]:
    """Return text and zone of a schedule. `read` turns them into the same schedule."""
    if schedule is None:
        return "", ""
    whole = msgspec.to_builtins(schedule)
    if isinstance(whole, dict):
        zone = whole.get("timezone", "")
        text = _words_for(whole)
        if read(text, zone) == whole:
            return text, zone
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode(), ""


def command(schedule: Any, name: str) -> str | None:
    """Return the command that adds a job with this schedule; None if the command line lacks a flag for it."""
    if not isinstance(schedule, dict) or not schedule.keys() <= _FLAGS.keys() | {"timezone"}:
        return None
    words = ["mainspring", "add", name or "my-job"]
    for field, flag in (*_FLAGS.items(), ("timezone", "--tz")):
        if field in schedule:
            words += [flag, str(schedule[field])]
    return shlex.join(words) + " -- ./my-command"


def with_minute(text: str, minute: int) -> str | None:
    """Return a cron expression at another minute of the hour; None if its minute is not a single number."""
    zone, fields = split_zone(text)
    macros = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
    words = macros.get(fields.strip().lower(), fields).split()
    place = len(words) - 5
    if place not in (0, 1) or not words[place].isdecimal():
        return None
    words[place] = str(minute)
    return " ".join([*([f"TZ={zone}"] if zone else []), *words])


def _from_json(text: str, zone: str) -> Any:
    if depth(text.encode()) > MAX_DEPTH:
        raise invalid("/schedule", "the JSON is nested too deeply", hint='for example {"cron": "0 2 * * *"}')
    try:
        schedule = msgspec.json.decode(text.encode())
    except msgspec.DecodeError as error:
        raise invalid("/schedule", f"invalid JSON: {error}", hint='for example {"cron": "0 2 * * *"}') from None
    for one in schedule if isinstance(schedule, list) else [schedule]:
        if zone and isinstance(one, dict) and "timezone" not in one:
            cron = one.get("cron")
            if not isinstance(cron, str) or split_zone(cron)[0] is None:
                one["timezone"] = zone
    return schedule


def _from_words(text: str) -> dict[str, Any]:
    if (described := read_words(text)) is not None:
        return described
    first, _, rest = text.partition(" ")
    if first.lower() == "every":
        span, _, aligned = rest.strip().rpartition(" ")
        if aligned.lower() == "aligned" and span:
            return {"every": _seconds(span.strip()), "aligned": True}
        return {"every": _seconds(rest.strip())}
    if first.lower() == "at" or _DATE.match(text):
        return {"at": rest.strip() if first.lower() == "at" else text}
    if "FREQ=" in text.upper() or re.match(r"(?i)(DTSTART|RRULE|EXDATE)\b", text):
        return _from_rule(text)
    return {"cron": text}


def _seconds(text: str) -> str | int:
    return int(text) if text.isdecimal() and len(text) < 12 else text


def _from_rule(text: str) -> dict[str, Any]:
    """Parse RFC 5545: DTSTART, RRULE and EXDATE, separated by line breaks or spaces."""
    found: dict[str, Any] = {}
    for part in text.split():
        line = _PROPERTY.fullmatch(part)
        if line is None:
            found["rrule"] = f"{found['rrule']} {part}" if "rrule" in found else part
            continue
        zones = re.findall(r"(?i);TZID=([^:;]*)", line["params"])
        if zones:
            found["timezone"] = zones[0]
        match line["name"].upper():
            case "RRULE":
                found["rrule"] = line["value"]
            case "DTSTART":
                found["dtstart"] = _timestamp(line["value"])
            case "EXDATE":
                found["exdates"] = [*found.get("exdates", ()), *map(_timestamp, line["value"].split(","))]
            case name:
                hint = "use DTSTART, RRULE and EXDATE"
                raise invalid("/schedule/rrule", f"{name} is not supported", hint=hint)
    if "rrule" not in found:
        raise invalid("/schedule/rrule", "RRULE is missing", hint="add RRULE:FREQ=MONTHLY;BYDAY=1MO")
    return found


def _timestamp(text: str) -> str:
    """Convert `20270104T090000Z` to 2027-01-04T09:00:00Z; leave anything else to the schedule parser."""
    basic = _BASIC.fullmatch(text)
    if basic is None:
        return text
    date = "-".join(basic.groups()[:3])
    return date if basic[4] is None else f"{date}T{basic[4]}:{basic[5]}:{basic[6]}{basic[7].upper()}"


def _words_for(schedule: dict[str, Any]) -> str:
    if "rrule" in schedule:
        start = [f"DTSTART:{schedule['dtstart']}"] if "dtstart" in schedule else []
        apart = [f"EXDATE:{','.join(schedule['exdates'])}"] if schedule.get("exdates") else []
        return "\n".join([*start, f"RRULE:{schedule['rrule'].removeprefix('RRULE:')}", *apart])
    if "every" in schedule:
        return f"every {schedule['every']}" + (" aligned" if schedule.get("aligned") else "")
    return str(schedule.get("cron") or schedule.get("at") or "")
