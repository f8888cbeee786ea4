"""What happens, by name: one catalogue for logs, the live stream, webhooks, alerts and an execution's own page.

`Event` is what the bus tells whoever watches: it names executions, and the database has the details.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec

from mainspring.domain.execution import State

Kind = Literal["started", "finished", "output", "paused"]
"""`paused`: the failure of these executions made the system pause their jobs."""


class Event(msgspec.Struct, frozen=True):
    """Something happened to these executions. With very many at once, some are left out and counted in `more`."""

    kind: Kind
    executions: list[UUID]
    more: int = 0


LIFECYCLE: dict[str, str] = {
    "execution.created": "decided by a fire, or submitted",
    "execution.due": "its time has come, or its backoff is over",
    "execution.queued": "workers may take it",
    "execution.started": "a worker has it: one attempt begins",
    "execution.retrying": "an attempt ended badly and another follows",
    "execution.succeeded": "ended well",
    "execution.failed": "failed for good",
    "execution.timed_out": "took too long, for good",
    "execution.cancelled": "ended because somebody asked for it",
    "execution.lost": "its worker was lost, for good",
    "execution.skipped": "decided, and not run; the reason says why",
}
"""What can happen to an execution. The words after the dot are its states, as everywhere else."""

_BY_STATE = {"waiting": "created", "blocked": "created", "running": "started"}


def event_of(state: State, attempt: int) -> str:
    """The event that brought an execution into its state."""
    if state in ("waiting", "queued") and attempt:
        return "execution.retrying"
    return f"execution.{_BY_STATE.get(state, state)}"


NOTICES: dict[str, str] = {
    "job.failed": "an execution of the job failed, timed out or was lost, for good",
    "job.recovered": "the first success after such an end",
    "job.late": "an execution has not started, or the job has not succeeded, when it should have",
    "job.missed": "a fire was skipped because its time had passed",
    "job.slow": "a success took much longer than usual",
}
"""What a job tells the channels that its `notify` names."""

ALERTS: dict[str, str] = {
    "alert.firing": "a rule has been broken for as long as it allows",
    "alert.resolved": "it holds again",
    "channel.disabled": "a channel failed for so long that nothing is sent to it any more",
}

TEST = "channel.test"

SUBSCRIBED: dict[str, str] = {
    name: means
    for name, means in (LIFECYCLE | ALERTS).items()
    if name not in ("execution.created", "execution.due", "execution.queued", "execution.started", "execution.skipped")
}
"""What a channel can ask for: endings and alerts, which are written to the outbox with the change itself."""
