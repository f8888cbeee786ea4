"""The event catalogue: one list for logs, the live stream, webhooks, alerts and execution timelines.

`Event` is the message on the bus. It names executions; subscribers read the details from the database.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from mainspring.domain.execution import State

Kind = Literal["started", "finished", "output", "paused"]
"""`paused`: the jobs of these executions were paused after repeated failures."""


class Event(msgspec.Struct, frozen=True):
    """An event of several executions. Beyond a limit, executions are left out and counted in `more`."""

    kind: Kind
    executions: list[UUID]
    more: int = 0


LIFECYCLE: dict[str, str] = {
    "execution.created": "created by a fire or a submission",
    "execution.due": "due time reached or backoff elapsed",
    "execution.queued": "ready to be claimed by a worker",
    "execution.started": "claimed by a worker: an attempt starts",
    "execution.retrying": "an attempt did not succeed and a retry follows",
    "execution.succeeded": "succeeded",
    "execution.failed": "failed permanently",
    "execution.timed_out": "timed out permanently",
    "execution.cancelled": "cancelled on request",
    "execution.lost": "worker lost, no retry follows",
    "execution.skipped": "not executed; the reason says why",
}
"""Events of an execution. The word after the dot is the state it enters."""

_BY_STATE = {"waiting": "created", "blocked": "created", "running": "started"}


def event_of(state: State, attempt: int) -> str:
    """The event that brought an execution into its state."""
    if state in ("waiting", "queued") and attempt:
        return "execution.retrying"
    return f"execution.{_BY_STATE.get(state, state)}"


NOTIFICATIONS: dict[str, str] = {
    "job.failed": "an execution of the job failed, timed out or was lost permanently",
    "job.recovered": "the first success after a permanent failure",
    "job.late": "an execution did not start, or the job did not succeed, by its deadline",
    "job.missed": "a fire was skipped because it was missed",
    "job.slow": "a successful execution took much longer than usual",
}
"""Notifications that a job sends to the channels in its `notify`."""

ALERTS: dict[str, str] = {
    "alert.firing": "a rule has been broken for longer than its `for`",
    "alert.resolved": "the rule holds again",
    "channel.disabled": "a channel was disabled after a day of failures",
    "audit.head": "the signed head of the audit log, once an hour if it has grown: an outside witness",
}

TEST = "channel.test"

SUBSCRIBED: dict[str, str] = {name: means for name, means in (LIFECYCLE | ALERTS).items() if name != "execution.due"}
"""Events that channels can subscribe to. The transaction of the change writes them to the outbox. `execution.queued`
has the due time, so `execution.due` is not among them."""
