"""The health verdict of the start page: one sentence whose parts are links. It is good when nothing needs a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mainspring.views.overview import Overview

LATE_MS = 1000
"""The verdict reports a start delay above this."""
Tone = Literal["good", "held", "bad"]


@dataclass(frozen=True, slots=True)
class VerdictPart:
    """A part of the sentence; `path` is the page that shows it, empty for plain words."""

    text: str
    path: str = ""
    at: datetime | None = None
    """An instant, which the page writes in the reader's zone instead of the text."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`held`: nothing needs a person, but a decision holds fires back."""

    tone: Tone
    parts: tuple[VerdictPart, ...]

    def __str__(self) -> str:
        return "".join(part.text for part in self.parts)


def verdict(o: Overview) -> Verdict:
    """Whether the system is healthy, and one sentence on it."""
    if not o.jobs and not o.recent:
        return _said("good", VerdictPart("Nothing is scheduled yet."))
    if stopped := _stopped(o):
        return _said("bad", *stopped)
    if troubles := list(_troubles(o)):
        return _said("bad", *_listed(troubles), VerdictPart("."))
    active = VerdictPart(_count(o.jobs - o.paused, "job"), "/jobs?q=state%3Aactive")
    if (until := o.attention.everything_until) is not None:
        held = VerdictPart("A blackout holds all fires back", "/settings#blackouts")
        end = VerdictPart(f"{until:%Y-%m-%d %H:%M} UTC", at=until)
        return _said("held", held, VerdictPart(" until "), end, VerdictPart("."))
    paused = VerdictPart(f"{o.paused:,} paused", "/jobs?q=state%3Apaused")
    tail = (VerdictPart(", "), paused) if o.paused else ()
    return _said("good", VerdictPart("All is well: "), active, VerdictPart(" on time"), *tail, VerdictPart("."))


def _stopped(o: Overview) -> list[VerdictPart]:
    """What keeps everything from running: a hold, no scheduler, or no worker."""
    if o.held_at is not None:
        since = VerdictPart(f"{o.held_at:%Y-%m-%d %H:%M} UTC", at=o.held_at)
        decide = VerdictPart(", after a restore: run mainspring db resume.")
        return [VerdictPart("Firing is held", "/system"), VerdictPart(" since "), since, decide]
    if o.shards_held < o.shards:
        shards = VerdictPart(f"{o.shards - o.shards_held} of {o.shards} shards", "/system")
        if o.shards_held:
            return [shards, VerdictPart(" do not fire: no scheduler holds them.")]
        return [VerdictPart("Nothing fires: "), VerdictPart("no scheduler is alive", "/system"), VerdictPart(".")]
    if o.workers:
        return []
    dead = [VerdictPart("Fires are decided, but "), VerdictPart("no worker is alive", "/workers")]
    if stuck := o.queued + o.running:
        waiting = VerdictPart(f"{_count(stuck, 'execution')} waiting", "/executions?state=queued")
        return [*dead, VerdictPart(" to run them; "), waiting, VerdictPart(".")]
    return [*dead, VerdictPart(" to run them.")]


def _troubles(o: Overview) -> Iterator[VerdictPart]:
    """What needs a person, the most urgent first."""
    seen = o.attention
    if seen.failing:
        yield VerdictPart(f"{_count(len(seen.failing), 'job')} failing", "/failures")
    if seen.approvals:
        words = f"{_count(len(seen.approvals), 'approval')} waiting"
        yield VerdictPart(words, f"/runs/{seen.approvals[0].run_id}" if len(seen.approvals) == 1 else "/#needs-you")
    if seen.unserved:
        yield VerdictPart(f"{_count(len(seen.unserved), 'queue')} without workers", "/queues")
    if seen.late:
        path = seen.late[0].path if len(seen.late) == 1 else "/jobs?tab=late"
        yield VerdictPart(f"{_count(len(seen.late), 'job')} late", path)
    elif o.queued and o.late_ms is not None and o.late_ms > LATE_MS:  # late starts of the past need no action
        yield VerdictPart("fires start late", "/queues")
    if o.suspects:
        yield VerdictPart(f"{_count(o.suspects, 'worker')} missed a heartbeat", "/workers")
    if seen.alerts:
        yield VerdictPart(f"{_count(len(seen.alerts), 'alert')} firing", "/alerts")


def _listed(parts: list[VerdictPart]) -> Iterator[VerdictPart]:
    for number, part in enumerate(parts):
        if number:
            yield VerdictPart(" and " if number == len(parts) - 1 else ", ")
        yield part


def _said(tone: Tone, *parts: VerdictPart) -> Verdict:
    return Verdict(tone, parts)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
