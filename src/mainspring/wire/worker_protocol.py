"""The protocol between the API and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition, JobSpec
from mainspring.wire.executions import Stream
from mainspring.wire.message import Request, Response

PROTOCOL = "1"
"""Version of the worker protocol; a worker sends it in the header `Mainspring-Protocol`."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Of a resource: cpu in thousandths of a core, memory and disk in bytes, anything else counted."""


class Register(Request):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    host: str
    version: str
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    queues: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]
    kinds: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)]
    labels: dict[str, str] = {}
    resources: Annotated[dict[str, Amount], msgspec.Meta(max_length=100)] = {}
    shared: bool = False
    schemas: Annotated[dict[str, dict[str, Any]], msgspec.Meta(max_length=100)] | msgspec.UnsetType = msgspec.UNSET
    """Of kinds that plug-ins add: the JSON Schema of their settings."""
    takes: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    """Parts of the protocol that older workers do not understand: `preempt`."""


class Registered(Response):
    session_id: UUID
    lease_s: float
    heartbeat_s: float
    takes: list[str] = []
    """Parts of the protocol that older servers refuse: `progress`, `no_retry`, `checkpoints`, `artifacts`,
    `artifacts_in`."""


class Poll(Request):
    """A worker asks for work: it has `free` slots and waits up to `wait_s`. `resources` is what is left of its own;
    null: all of it."""

    session_id: UUID
    free: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 30.0
    resources: dict[str, int] | None = None


class Assignment(Response, array_like=True):
    """One attempt to make. The definition is found under `definition` in the same answer."""

    execution_id: UUID
    attempt: int
    definition: str
    job_id: UUID
    fire_at: datetime
    params: Any


class Preempt(Response, array_like=True):
    """An attempt that is to make room: it is asked to end, and goes on later."""

    execution_id: UUID
    attempt: int


class Polled(Response):
    executions: list[Assignment]
    definitions: dict[str, Definition]
    cancels: list[UUID]
    preempts: list[Preempt] = []


class Output(Request, array_like=True):
    execution_id: UUID
    attempt: int
    seq: int
    stream: Stream
    data: bytes


class Result(Request, array_like=True):
    """How one attempt ended, as its worker saw it."""

    execution_id: UUID
    attempt: int
    outcome: Outcome
    duration_ms: int
    exit_code: int | None = None
    error: str | None = None
    result: Any = None


class Results(Request, omit_defaults=True):
    """`no_retry` names results that another try would not change."""

    session_id: UUID
    results: Annotated[list[Result], msgspec.Meta(max_length=5000)]
    output: Annotated[list[Output], msgspec.Meta(max_length=5000)] = []
    no_retry: Annotated[list[UUID], msgspec.Meta(max_length=5000)] = []


class Settled(Response):
    """`stale` lists results nobody waits for any more: another attempt took over, or the execution has ended."""

    stale: list[UUID]


class ProgressReport(Request, array_like=True):
    """How far one attempt is."""

    execution_id: UUID
    attempt: int
    done: float
    total: float | None = None
    rate: float | None = None
    message: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Heartbeat(Request, omit_defaults=True):
    """A worker lives. `running` is all it holds, results not yet delivered included: the rest is given to others.

    `progress` has the last word of every running attempt that has one.
    """

    session_id: UUID
    running: Annotated[list[UUID], msgspec.Meta(max_length=100_000)]
    draining: bool = False
    progress: Annotated[list[ProgressReport], msgspec.Meta(max_length=10_000)] = []


class Beat(Response):
    """`gone` lists what the worker holds and should not: it belongs to others, or has ended."""

    lease_s: float
    cancels: list[UUID]
    gone: list[UUID] = []
    preempts: list[Preempt] = []


class CheckpointReport(Request, array_like=True):
    """Where one attempt would go on."""

    execution_id: UUID
    attempt: int
    value: Any


class SaveCheckpoints(Request):
    session_id: UUID
    checkpoints: Annotated[list[CheckpointReport], msgspec.Meta(max_length=1000)]


class ReadCheckpoints(Request):
    session_id: UUID
    executions: Annotated[list[UUID], msgspec.Meta(max_length=10_000)]


class Checkpoints(Response):
    """By execution, where earlier attempts left off; those that left nothing are not in it."""

    checkpoints: dict[UUID, Any]


class Declare(Request):
    """Jobs as a worker's code declares them."""

    jobs: Annotated[list[JobSpec], msgspec.Meta(min_length=1, max_length=1000)]


class Declared(Response):
    """What became of one declared job, in the order of the request."""

    name: str
    change: Literal["created", "updated", "unchanged", "refused"]
    version: int | None = None
    problem: str | None = None


class DeclareAnswer(Response):
    jobs: list[Declared]


class Goodbye(Request):
    session_id: UUID
    lost: bool = False
