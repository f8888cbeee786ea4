"""The timeline of an execution, derived from its stored rows."""

from __future__ import annotations

from datetime import datetime

from mainspring import wire
from mainspring.domain.execution import FINAL


def events_of(e: wire.Execution) -> list[wire.LifecycleEvent]:
    """Lifecycle events with their instants, in order.

    Events are only appended: the row of an attempt keeps what a later attempt overwrites in the execution's row. An
    execution that waits for its first due time has none yet.
    """
    found: list[wire.LifecycleEvent] = []

    def add(word: str, at: datetime | None, attempt: int | None = None, text: str | None = None) -> None:
        if at is not None:
            # A statement reads the clock per value: a later event may be stamped microseconds earlier.
            at = max(at, found[-1].at) if found else at
            found.append(wire.LifecycleEvent(event=f"execution.{word}", at=at, attempt=attempt, text=text))

    added: set[tuple[str, datetime | None]] = set()

    def add_queued(due_at: datetime | None, queued_at: datetime | None) -> None:
        """Add due and queued of an attempt, once: a rescue requeues with the same due time."""
        for word, at in (("due", due_at), ("queued", queued_at)):
            if queued_at is not None and (word, at) not in added:
                added.add((word, at))
                add(word, at)

    ended, before = e.state in FINAL, e.attempts[0] if e.attempts else None
    if e.state != "skipped":
        add("created", _created(e, before), text=f"by {e.created_by}" if e.created_by else e.trigger)
    for attempt in e.attempts:
        add_queued(attempt.due_at, attempt.queued_at)
        add("started", attempt.started_at, attempt.attempt, attempt.worker)
        if attempt.attempt < e.attempt or not ended or _given_back(e, attempt):
            add("retrying", attempt.ended_at, attempt.attempt, attempt.error or attempt.outcome)
    add_queued(e.due_at, e.queued_at)
    if e.started_at is not None and all(a.attempt != e.attempt for a in e.attempts):
        add("started", e.started_at, e.attempt, e.worker)
    if ended:
        add(e.state, e.finished_at, e.attempt or None, e.error or e.reason)
    return found


def _created(e: wire.Execution, first: wire.Attempt | None) -> datetime | None:
    """A fire is created at its instant, a submission when it is due."""
    due_at = e.due_at if first is None else first.due_at or e.fire_at
    if e.trigger == "fire" and due_at > e.fire_at:
        return e.fire_at
    waiting = first is None and e.queued_at is None and e.state == "waiting"
    return None if waiting or (e.finished_at is not None and e.finished_at < due_at) else due_at


def _given_back(e: wire.Execution, last: wire.Attempt) -> bool:
    """Whether the execution ended while it waited for an attempt after this one."""
    return e.queued_at is None or e.queued_at > last.started_at
