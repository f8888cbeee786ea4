"""The worker stream: one HTTP request whose body and response stay open, a JSON document per line in each direction.

The worker sends `OpenStream` first. It numbers the messages that it wants answered; `Answer` or `Rejected` has the same
number. Work is sent without being asked for, as far as the stated capacity allows.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Name
from mainspring.domain.job import Definition
from mainspring.wire.message import Request, Response
from mainspring.wire.worker_protocol import Amount, Assignment, JobUsage, Output, Preempt, ProgressReport, Result

MAX_LINE_BYTES = 8_000_000
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Capacity(Request, omit_defaults=True, tag="capacity"):
    """What the worker has free after the first `received` executions of this stream.

    The api deducts what it has sent since. `resources` is what remains of the worker's; null: all.
    """

    received: Count
    free: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    resources: Annotated[dict[Name, Amount], msgspec.Meta(max_length=100)] | None = None


class OpenStream(Request, omit_defaults=True, tag="open"):
    """Opens the stream of a session; an earlier stream or poll of the session ends.

    `held` is null in the first stream of a session. Later it lists the executions that the worker holds: running ones
    that it does not list were lost on the way, and are sent again.
    """

    session_id: UUID
    capacity: Capacity
    held: Annotated[list[UUID], msgspec.Meta(max_length=100_000)] | None = None


class ReportResults(Request, omit_defaults=True, tag="results"):
    """Outcomes and log output; the body of its answer is `Settled`."""

    number: Count
    results: Annotated[list[Result], msgspec.Meta(max_length=5000)]
    output: Annotated[list[Output], msgspec.Meta(max_length=5000)] = []
    no_retry: Annotated[list[UUID], msgspec.Meta(max_length=5000)] = []
    capacity: Capacity | None = None


class RenewLease(Request, omit_defaults=True, tag="heartbeat"):
    """A heartbeat; the body of its answer is `Beat`."""

    number: Count
    running: Annotated[list[UUID], msgspec.Meta(max_length=100_000)]
    draining: bool = False
    progress: Annotated[list[ProgressReport], msgspec.Meta(max_length=10_000)] = []
    usage: Annotated[list[JobUsage], msgspec.Meta(max_length=1_000)] = []


class Recall(Request, tag="recall"):
    """Requests that no more work is sent. Whatever was sent before arrives before the answer."""

    number: Count


class Ping(Request, tag="ping"):
    """Keeps the connection open; answered without a body."""

    number: Count


WorkerMessage = OpenStream | Capacity | ReportResults | RenewLease | Recall | Ping


class Work(Response, omit_defaults=True, tag="work"):
    """Attempts to run, and attempts to end.

    `definitions` has those that this stream has not had before; with `forget`, the earlier ones are no longer used.
    """

    executions: list[Assignment] = []
    definitions: dict[str, Definition] = {}
    cancels: list[UUID] = []
    preempts: list[Preempt] = []
    forget: bool = False


class Answer(Response, omit_defaults=True, tag="answer"):
    number: int
    body: Any = None


class Rejected(Response, tag="rejected"):
    """The message with this number was not accepted, for the reason that a response with this status would have."""

    number: int
    status: int
    code: str
    detail: str


class StateCapacity(Response, tag="state_capacity"):
    """Asks the worker to state its capacity again."""


class Closing(Response, tag="closing"):
    """The last message: the session has ended, or the worker should open its next stream, at any api process."""

    session_ended: bool = False


ApiMessage = Work | Answer | Rejected | StateCapacity | Closing
