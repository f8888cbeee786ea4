"""What happened to an execution, told by what is stored of it: nothing is written for this."""

from __future__ import annotations

from datetime import datetime

from mainspring import wire
from mainspring.domain.execution import FINAL


def events_of(e: wire.Execution) -> list[wire.LifecycleEvent]:
    """The events of the catalogue with their instants, in order.

    Later ones are added at the end and earlier ones stay: an attempt's row keeps what the execution's own row forgets.
    What waits for its first time to come has none yet.
    """
    found: list[wire.LifecycleEvent] = []

    def add(word: str, at: datetime | None, attempt: int | None = None, text: str | None = None) -> None:
        if at is not None:
            # One statement asks the clock for each value it writes: what follows may be microseconds before.
            at = max(at, found[-1].at) if found else at
            found.append(wire.LifecycleEvent(event=f"execution.{word}", at=at, attempt=attempt, text=text))

    told: set[tuple[str, datetime | None]] = set()

    def stood_in_line(due_at: datetime | None, queued_at: datetime | None) -> None:
        """Of an attempt, or of the one ahead. A rescue gives back without another due time."""
        for word, at in (("due", due_at), ("queued", queued_at)):
            if queued_at is not None and (word, at) not in told:
                told.add((word, at))
                add(word, at)

    ended, before = e.state in FINAL, e.attempts[0] if e.attempts else None
    if e.state != "skipped":
        add("created", _created(e, before), text=f"by {e.created_by}" if e.created_by else e.trigger)
    for attempt in e.attempts:
        stood_in_line(attempt.due_at, attempt.queued_at)
        add("started", attempt.started_at, attempt.attempt, attempt.worker)
        if attempt.attempt < e.attempt or not ended or _given_back(e, attempt):
            add("retrying", attempt.ended_at, attempt.attempt, attempt.error or attempt.outcome)
    stood_in_line(e.due_at, e.queued_at)
    if e.started_at is not None and all(a.attempt != e.attempt for a in e.attempts):
        add("started", e.started_at, e.attempt, e.worker)
    if ended:
        add(e.state, e.finished_at, e.attempt or None, e.error or e.reason)
    return found


def _created(e: wire.Execution, first: wire.Attempt | None) -> datetime | None:
    """A fire is decided at its instant; what was submitted is told from when it was due on."""
    due_at = e.due_at if first is None else first.due_at or e.fire_at
    if e.trigger == "fire" and due_at > e.fire_at:
        return e.fire_at
    waiting = first is None and e.queued_at is None and e.state == "waiting"
    return None if waiting or (e.finished_at is not None and e.finished_at < due_at) else due_at


def _given_back(e: wire.Execution, last: wire.Attempt) -> bool:
    """Whether it ended while it waited for another attempt after this one."""
    return e.queued_at is None or e.queued_at > last.started_at
