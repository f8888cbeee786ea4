"""States, durations and instants as pages show them. Pure: `now` comes as an argument."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec

from mainspring import wire
from mainspring.codec import encode
from mainspring.display.text import clean, progress_text
from mainspring.display.times import span
from mainspring.domain.job import JobSpec, ShellTask, task_text
from mainspring.domain.schedule.schedule import ScheduleSpec, ScheduleSpecs, members_of

SHORT_ID = 18
"""Time, version and twelve bits of the hash: enough of an id to be told apart, and to be used as one."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a state is shown: never by colour alone, so a glyph and a word come with it."""

    word: str
    glyph: str
    hue: str


LOOKS = {
    "succeeded": Look("succeeded", "check", "good"),
    "running": Look("running", "play", "busy"),
    "failed": Look("failed", "cross", "bad"),
    "timed_out": Look("timed out", "clock", "bad"),
    "lost": Look("lost", "skull", "lost"),
    "retry": Look("waiting to retry", "again", "retry"),
    "waiting": Look("waiting", "hourglass", "dim"),
    "blocked": Look("blocked", "hourglass", "held"),
    "queued": Look("queued", "dotted", "dim"),
    "cancelled": Look("cancelled", "barred", "dim"),
    "skipped": Look("skipped", "skip", "dim"),
    "preempted": Look("preempted", "again", "retry"),
    "active": Look("active", "dot", "good"),
    "paused": Look("paused", "pause", "retry"),
    "finished": Look("finished", "check", "dim"),
    "deleted": Look("deleted", "barred", "dim"),
    "draining": Look("draining", "hourglass", "retry"),
    "suspect": Look("suspect", "clock", "bad"),
    "idle": Look("idle", "dot", "good"),
    "busy": Look("busy", "play", "busy"),
    "offline": Look("offline", "barred", "dim"),
    "open": Look("open", "alert", "bad"),
    "held": Look("held", "hourglass", "retry"),
    "replaying": Look("replaying", "play", "busy"),
    "resolved": Look("resolved", "check", "good"),
    "superseded": Look("superseded", "again", "dim"),
    "dismissed": Look("dismissed", "barred", "dim"),
    "firing": Look("firing", "alert", "bad"),
    "pending": Look("pending", "hourglass", "retry"),
    "ok": Look("ok", "dot", "good"),
    "failing": Look("failing", "alert", "bad"),
    "disabled": Look("disabled", "barred", "bad"),
    "sent": Look("sent", "check", "good"),
    "dropped": Look("dropped", "cross", "bad"),
}


Stateful = (
    wire.Execution
    | wire.Attempt
    | wire.Job
    | wire.LastExecution
    | wire.LedgerEntry
    | wire.Worker
    | wire.Backfill
    | wire.DeadLetter
    | wire.Alert
    | wire.Channel
    | wire.Delivery
)


def look(of: Stateful) -> Look:
    """The look of anything that has a state; a retry is told from a first wait."""
    if isinstance(of, wire.LastExecution) and of.state == "waiting":
        return LOOKS["retry"]  # those that wait for their first fire are not among the last
    if isinstance(of, wire.Attempt):
        return LOOKS[of.outcome]
    if isinstance(of, wire.Execution) and of.state == "waiting" and of.attempt > 0:
        return LOOKS["retry"]
    return LOOKS[of.state]


def look_of(state: str) -> Look:
    """The look of a state by its name."""
    return LOOKS[state]


ISOLATION = "sandbox/"
"""Workers tell by such labels what they can keep attempts apart with."""


def isolation(labels: dict[str, str]) -> str:
    """What a worker keeps attempts apart with."""
    return ", ".join(sorted(name.removeprefix(ISOLATION) for name in labels if name.startswith(ISOLATION)))


def given_labels(labels: dict[str, str]) -> list[str]:
    """The labels that people gave a worker."""
    return [f"{name}={value}" for name, value in sorted(labels.items()) if not name.startswith(ISOLATION)]


def deadline(found: wire.Deadline) -> str:
    """What a missed deadline means, as a sentence without its instant."""
    if found.kind == "finish_by":
        return "It has missed its deadline: the latest fire was to have succeeded by"
    return "It has gone too long without a success: one was expected by"


def short(execution_id: object) -> str:
    return str(execution_id)[:SHORT_ID]


def stamp(at: datetime) -> str:
    """For the datetime attribute: RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def clock(at: datetime, now: datetime, *, millis: bool = False) -> str:
    """The time in UTC, with as much of the date as today leaves open. times.js writes the same for local time."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    text = at.strftime("%H:%M:%S") + (f".{at.microsecond // 1000:03d}" if millis else "")
    if at.date() == now.date():
        return text
    day = f"{at.day} {at:%b}" + ("" if at.year == now.year else f" {at.year}")
    return f"{day} {text}"


def wall(at: datetime, zone: str, now: datetime) -> str:
    """Date and time on the wall clocks of a zone, with the name the zone has at that moment."""
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
    """The schedule as it was written: `0 2 * * *`, `every 5s`; several with a line between them."""
    return " | ".join(map(_raw, members_of(schedule)))


def _raw(schedule: ScheduleSpec) -> str:
    text = schedule.cron or schedule.rrule
    if text is None:
        text = f"every {schedule.every}" if schedule.every is not None else f"at {schedule.at}"
    return text if schedule.timezone is None else f"{text} {schedule.timezone}"


def command(spec: JobSpec) -> str:
    """What the job runs, as one would type it."""
    if not isinstance(spec.task, ShellTask):
        return task_text(spec.task)
    return spec.task.argv[0] if spec.task.shell else shlex.join(spec.task.argv)


def pace(progress: wire.Progress) -> str:
    """How far, how long still, how fast: `41 % · 410/1000 · ~12 s left · 50 a second · loading`."""
    if not progress.rate:
        return progress_text(progress)
    rate = f"{progress.rate:,.0f}" if progress.rate >= 100 else f"{progress.rate:.3g}"
    far = progress_text(msgspec.structs.replace(progress, message=None))
    return " · ".join(filter(None, (far, f"{rate} a second", clean(progress.message or ""))))


def compact(count: int) -> str:
    """A number in four characters at most: 940, 1.2k, 38k, 1.1M."""
    for size, unit in ((1_000_000, "M"), (1000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size:,}{unit}"
    return str(count)


def json_text(value: object) -> str:
    return msgspec.json.format(encode(value), indent=2).decode()


def summary(last: Iterable[wire.LastExecution]) -> str:
    """A strip of executions in one line: "3 succeeded, 1 failed"."""
    counts = Counter(LOOKS[e.state].word for e in last)
    return ", ".join(f"{n} {word}" for word, n in counts.most_common()) or "none yet"
