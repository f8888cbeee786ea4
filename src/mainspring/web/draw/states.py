"""How each state is shown: label, icon and colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mainspring import wire


@dataclass(frozen=True, slots=True)
class StateStyle:
    """The label, icon and tone of a state: colour alone never carries the meaning. `tone` is a CSS class."""

    label: str
    icon: str
    tone: str


STATE_STYLES = {
    "succeeded": StateStyle("succeeded", "check", "good"),
    "running": StateStyle("running", "play", "busy"),
    "failed": StateStyle("failed", "cross", "bad"),
    "timed_out": StateStyle("timed out", "clock", "bad"),
    "lost": StateStyle("lost", "skull", "lost"),
    "retry": StateStyle("waiting to retry", "again", "retry"),
    "waiting": StateStyle("waiting", "hourglass", "dim"),
    "blocked": StateStyle("blocked", "hourglass", "held"),
    "queued": StateStyle("queued", "dotted", "dim"),
    "cancelled": StateStyle("cancelled", "barred", "dim"),
    "skipped": StateStyle("skipped", "skip", "dim"),
    "preempted": StateStyle("preempted", "again", "retry"),
    "active": StateStyle("active", "dot", "good"),
    "paused": StateStyle("paused", "pause", "retry"),
    "finished": StateStyle("finished", "check", "dim"),
    "deleted": StateStyle("deleted", "barred", "dim"),
    "draining": StateStyle("draining", "hourglass", "retry"),
    "suspect": StateStyle("suspect", "clock", "bad"),
    "idle": StateStyle("idle", "dot", "good"),
    "busy": StateStyle("busy", "play", "busy"),
    "offline": StateStyle("offline", "barred", "dim"),
    "open": StateStyle("open", "alert", "bad"),
    "held": StateStyle("held", "hourglass", "retry"),
    "replaying": StateStyle("replaying", "play", "busy"),
    "resolved": StateStyle("resolved", "check", "good"),
    "superseded": StateStyle("superseded", "again", "dim"),
    "dismissed": StateStyle("dismissed", "barred", "dim"),
    "firing": StateStyle("firing", "alert", "bad"),
    "pending": StateStyle("pending", "hourglass", "retry"),
    "ok": StateStyle("ok", "dot", "good"),
    "failing": StateStyle("failing", "alert", "bad"),
    "disabled": StateStyle("disabled", "barred", "bad"),
    "sent": StateStyle("sent", "check", "good"),
    "started": StateStyle("started", "check", "good"),
    "filtered": StateStyle("filtered", "skip", "dim"),
    "refused": StateStyle("refused", "cross", "bad"),
    "dropped": StateStyle("dropped", "cross", "bad"),
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
    | wire.Trigger
    | wire.TriggerDelivery
)


def state_style(of: Stateful) -> StateStyle:
    """Return the style of anything that has a state. A wait for a retry differs from a wait for the first attempt."""
    if isinstance(of, wire.LastExecution) and of.state == "waiting":
        return STATE_STYLES["retry"]  # the latest executions do not include those before their first attempt
    if isinstance(of, wire.Attempt | wire.TriggerDelivery):
        return STATE_STYLES[of.outcome]
    if isinstance(of, wire.Execution) and of.state == "waiting" and of.attempt > 0:
        return STATE_STYLES["retry"]
    return STATE_STYLES[of.state]


def style_of_state(state: str) -> StateStyle:
    return STATE_STYLES[state]


def count_states(last: Iterable[wire.LastExecution]) -> str:
    """Summarize executions by state: "3 succeeded, 1 failed"."""
    counts = Counter(STATE_STYLES[e.state].label for e in last)
    return ", ".join(f"{n} {label}" for label, n in counts.most_common()) or "none yet"
