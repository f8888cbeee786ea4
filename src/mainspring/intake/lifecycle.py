"""What happened to an execution, told by what is stored of it: nothing is written for this."""

from __future__ import annotations

from datetime import datetime

from mainspring import wire
from mainspring.domain.execution import FINAL


def events_of(e: wire.Execution) -> list[wire.LifecycleEvent]:
    """The events of the catalogue with their instants, in order.

    An attempt that ended badly has its start and its end; of an earlier wait in the queue only the last is kept.
    """
    found: list[wire.LifecycleEvent] = []

    def add(word: str, at: datetime | None, attempt: int | None = None, text: str | None = None) -> None:
        if at is not None:
            found.append(wire.LifecycleEvent(event=f"execution.{word}", at=at, attempt=attempt, text=text))

    ended = e.state in FINAL
    if e.state != "skipped":
        add("created", e.fire_at, text=f"by {e.created_by}" if e.created_by else e.trigger)
        last = e.finished_at if ended and e.started_at is None else e.started_at or e.queued_at
        if last is None or e.due_at <= last:
            add("due", e.due_at)
    for attempt in e.attempts:
        add("started", attempt.started_at, attempt.attempt, attempt.worker)
        if attempt.attempt < e.attempt or not ended:
            add("retrying", attempt.ended_at, attempt.attempt, attempt.error or attempt.outcome)
    if e.queued_at is not None and (e.attempt == 0 or e.started_at is None or e.queued_at <= e.started_at):
        add("queued", e.queued_at)
    if e.started_at is not None and all(a.attempt != e.attempt for a in e.attempts):
        add("started", e.started_at, e.attempt, e.worker)
    if ended:
        add(e.state, e.finished_at, e.attempt or None, e.error or e.reason)
    # What happens at one instant stays in the order of a life.
    return sorted(found, key=lambda event: event.at)
