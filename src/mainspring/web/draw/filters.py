"""Template filters: instants, durations, numbers and definitions as text. Pure: `now` is an argument."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from markupsafe import Markup, escape

from mainspring import wire
from mainspring.codec import encode
from mainspring.display.text import clean, progress_text
from mainspring.display.times import span
from mainspring.domain.job import JobSpec, ShellTask, task_text
from mainspring.domain.params import defaults
from mainspring.domain.schedule.schedule import ScheduleSpec, ScheduleSpecs, members_of

SHORT_ID_CHARS = 18
"""Timestamp, version and twelve bits of the hash: enough to distinguish ids, and accepted as an id prefix."""
_INSTANT = r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?"
_UTC_TIME = re.compile(rf"\b({_INSTANT})(?: UTC\b|(?= to {_INSTANT} UTC\b))", re.ASCII)
_BROWSERS = (
    ("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS/", "Firefox"), ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"), ("Safari/", "Safari"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iOS"), ("iPad", "iOS"), ("Android", "Android"), ("Windows", "Windows"), ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"), ("Linux", "Linux"),
)  # fmt: skip
"""Signs in the order in which they count: many browsers name others as well."""
SANDBOX_LABEL = "sandbox/"
"""Prefix of the labels by which workers report their isolation methods."""


def isolation(labels: dict[str, str]) -> str:
    """Return the isolation methods of a worker."""
    return ", ".join(sorted(name.removeprefix(SANDBOX_LABEL) for name in labels if name.startswith(SANDBOX_LABEL)))


def given_labels(labels: dict[str, str]) -> list[str]:
    """Return the labels of a worker that were configured, as `name=value`."""
    return [f"{name}={value}" for name, value in sorted(labels.items()) if not name.startswith(SANDBOX_LABEL)]


def deadline(found: wire.Deadline) -> str:
    """Describe a missed deadline; the template adds its time."""
    if found.kind == "finish_by":
        return "Deadline missed: the latest fire should have succeeded by"
    return "Too long without a success: one was expected by"


def short(execution_id: object) -> str:
    return str(execution_id)[:SHORT_ID_CHARS]


def stamp(at: datetime) -> str:
    """Format an instant for a `datetime` attribute: RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def clock(at: datetime, now: datetime, zone: str = "UTC", *, millis: bool = False) -> str:
    """Format a time in a zone, with the date unless it is today."""
    there = ZoneInfo(zone)
    at, now = at.astimezone(there), now.astimezone(there)
    text = at.strftime("%H:%M:%S") + (f".{at.microsecond // 1000:03d}" if millis else "")
    if at.date() == now.date():
        return text
    day = f"{at.day} {at:%b}" + ("" if at.year == now.year else f" {at.year}")
    return f"{day} {text}"


def zoned(text: str, now: datetime, zone: str = "UTC") -> Markup:
    """Return a text with its times in UTC, such as `2026-11-18 19:45:00 UTC` or `… to … UTC`, as times in a zone."""
    parts: list[Markup] = []
    place = 0
    for found in _UTC_TIME.finditer(text):
        try:
            at = datetime.fromisoformat(f"{found[1]}+00:00")
        except ValueError:
            continue
        shown = Markup('<time datetime="{}" title="{}">{}</time>').format(stamp(at), stamp(at), clock(at, now, zone))
        parts += [escape(text[place : found.start()]), shown]
        place = found.end()
    return Markup("").join([*parts, escape(text[place:])])


def form_time(at: datetime, zone: str) -> str:
    """Format a time in a zone for an input of the type datetime-local."""
    return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M")


def wall(at: datetime, zone: str, now: datetime) -> str:
    """Format local date and time in a zone, with the abbreviation of the zone at that instant."""
    there = at.astimezone(ZoneInfo(zone))
    year = "" if there.year == now.year else f" {there.year}"
    return f"{there:%a} {there.day} {there:%b}{year} {there:%H:%M:%S %Z}"


def between(start: datetime, end: datetime) -> str:
    return span(max(0.0, (end - start).total_seconds() * 1000))


def until(at: datetime, now: datetime) -> str:
    return f"in {between(now, at)}" if at > now else "due"


def ago(at: datetime, now: datetime) -> str:
    return f"{between(at, now)} ago"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def raw_schedule(schedule: ScheduleSpecs | None) -> str:
    """Return the schedule as it was written: `0 2 * * *`, `every 5s`; several are joined by `|`."""
    return " | ".join(map(_raw, members_of(schedule)))


def _raw(schedule: ScheduleSpec) -> str:
    text = schedule.cron or schedule.rrule
    if text is None:
        text = f"every {schedule.every}" if schedule.every is not None else f"at {schedule.at}"
    return text if schedule.timezone is None else f"{text} {schedule.timezone}"


def command(spec: JobSpec) -> str:
    """Return what the job runs, as a command line where it has one."""
    if not isinstance(spec.task, ShellTask):
        return task_text(spec.task)
    return spec.task.argv[0] if spec.task.shell else shlex.join(spec.task.argv)


def resolved_params(execution: wire.Execution, spec: JobSpec | None) -> dict[str, object]:
    """Return the parameters that the execution was started with: the given ones over the defaults of its version."""
    given = execution.params if isinstance(execution.params, dict) else {}
    return (defaults(spec.params) if spec is not None else {}) | given


def progress(value: wire.Progress) -> str:
    """Format progress with its rate: `41 % · 410/1000 · ~12 s left · 50/s · loading`."""
    if not value.rate:
        return progress_text(value)
    rate = f"{value.rate:,.0f}" if value.rate >= 100 else f"{value.rate:.3g}"
    far = progress_text(msgspec.structs.replace(value, message=None))
    return " · ".join(filter(None, (far, f"{rate}/s", clean(value.message or ""))))


def compact(count: int) -> str:
    """Format a number in at most four characters: 940, 1.2k, 38k, 1.1M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size:,}{unit}"
    return str(count)


def browser_name(user_agent: str) -> str:
    """Return browser and system of a User-Agent header, such as "Firefox on Windows"; the header if it has neither."""
    browser = next((name for sign, name in _BROWSERS if sign in user_agent), "")
    system = next((name for sign, name in _SYSTEMS if sign in user_agent), "")
    return " on ".join(filter(None, (browser, system))) or user_agent[:80] or "unknown"


def json_text(value: object) -> str:
    return msgspec.json.format(encode(value), indent=2).decode()
