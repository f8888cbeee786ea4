"""The protocol between the API and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Count, Int32, Int64, Labels, Name, Values
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition, JobSpec
from mainspring.domain.placement.functions import MAX_FUNCTIONS, MAX_MODULES
from mainspring.wire.executions import Stream
from mainspring.wire.message import Request, Response

MAX_CHUNK_BYTES = 256_000
"""Of one piece of output; workers send up to 64,000."""
MAX_ERROR_CHARS = 100_000
AttemptNumber = Annotated[int, msgspec.Meta(ge=0, le=32_767)]

PROTOCOL = "1"
"""Version of the worker protocol; a worker sends it in the header `Mainspring-Protocol`."""
SESSION_KEY = "Mainspring-Session-Key"
"""Header of every request for a session that was registered with a key."""
CREDENTIAL = "Mainspring-Attempt"
"""Header of requests for the artifacts of an attempt: the credential that its claim carried."""
WORKER_USER = "Mainspring-Worker-User"
"""Header of a registration: uid of the worker, and its machine. A header, because older servers refuse new fields."""
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""An amount of a resource: cpu in thousandths of a core, memory and disk in bytes, others in units."""


class Register(Request):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    host: Name
    version: Name
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=100)]
    kinds: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=100)]
    labels: Labels = {}
    resources: Annotated[dict[Name, Amount], msgspec.Meta(max_length=100)] = {}
    shared: bool = False
    schemas: Annotated[dict[Name, Values], msgspec.Meta(max_length=100)] | msgspec.UnsetType = msgspec.UNSET
    """The JSON Schema of the settings of each task kind that a plug-in adds."""
    takes: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    """Optional protocol features that this worker supports: `preempt`, `session_key`, `functions`, `disclaim`.

    With `functions`, it gets no Python task until it has stated its functions. With `disclaim`, it reports `preempted`
    for an attempt to preempt that it has not received, and refuses it from then on."""


class Registered(Response):
    session_id: UUID
    lease_s: float
    heartbeat_s: float
    key: str = ""
    """Proves every later message of the session, in the header `Mainspring-Session-Key`. Empty unless the worker
    takes `session_key`. Only its SHA-256 is stored."""
    takes: list[str] = []
    """Optional protocol features that this server supports: `progress`, `no_retry`, `checkpoints`, `artifacts`,
    `artifacts_in`, `stream`, `functions`, `secrets`, `usage`."""


class StateFunctions(Request):
    """The Python functions of a session, in place of those stated before; for a server that takes `functions`.

    An entry is a function (`shop:pay`), the name of a declared job, every function of a module (`shop.tools:*`) or of
    a package (`shop.*`), or `*`. `modules` has their versions.
    """

    session_id: UUID
    functions: Annotated[list[Name], msgspec.Meta(max_length=MAX_FUNCTIONS)]
    modules: Annotated[dict[Name, Name], msgspec.Meta(max_length=MAX_MODULES)] = {}


class Poll(Request):
    """Requests executions for `free` slots, waiting up to `wait_s`.

    `resources` is what remains of the worker's; null: all.
    """

    session_id: UUID
    free: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 30.0
    resources: Annotated[dict[Name, Amount], msgspec.Meta(max_length=100)] | None = None


class Assignment(Response, array_like=True):
    """One attempt to run. `definition` is a key of `definitions` in the same response.

    `credential` is of this attempt only. Its artifacts and checkpoints need it, if the session has a key.
    """

    execution_id: UUID
    attempt: int
    definition: str
    job_id: UUID
    fire_at: datetime
    params: Any
    credential: str = ""


class Preempt(Response, array_like=True):
    """An attempt to preempt: it must end, and its execution continues later."""

    execution_id: UUID
    attempt: int


class Polled(Response):
    executions: list[Assignment]
    definitions: dict[str, Definition]
    cancels: list[UUID]
    preempts: list[Preempt] = []


class Output(Request, array_like=True):
    execution_id: UUID
    attempt: AttemptNumber
    seq: Count
    stream: Stream
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_CHUNK_BYTES)]


class Result(Request, array_like=True):
    """The outcome of one attempt, as its worker reports it."""

    execution_id: UUID
    attempt: AttemptNumber
    outcome: Outcome
    duration_ms: Int64
    exit_code: Int32 | None = None
    error: Annotated[str, msgspec.Meta(max_length=MAX_ERROR_CHARS)] | None = None
    result: Any = None


class Results(Request, omit_defaults=True):
    """Outcomes and log output. `no_retry` names executions that a retry would not help."""

    session_id: UUID
    results: Annotated[list[Result], msgspec.Meta(max_length=5000)]
    output: Annotated[list[Output], msgspec.Meta(max_length=5000)] = []
    no_retry: Annotated[list[UUID], msgspec.Meta(max_length=5000)] = []


class Settled(Response):
    """`stale` lists rejected results: another attempt took over, or the execution has ended."""

    stale: list[UUID]


class ProgressReport(Request, array_like=True):
    """The progress of one attempt."""

    execution_id: UUID
    attempt: AttemptNumber
    done: float
    total: float | None = None
    rate: float | None = None
    message: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class JobUsage(Request, array_like=True):
    """What attempts of a job used since the last heartbeat: programs only.

    `cores_max`: the highest mean of one attempt, in thousandths of a core; `memory_max`: bytes of the largest process.
    """

    job_id: UUID
    attempts: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    cpu_ms: Annotated[int, msgspec.Meta(ge=0, le=10**12)]
    wall_ms: Annotated[int, msgspec.Meta(ge=0, le=10**12)]
    cores_max: Annotated[int, msgspec.Meta(ge=0, le=10**7)]
    memory_max: Annotated[int, msgspec.Meta(ge=0, le=2**50)]


class Heartbeat(Request, omit_defaults=True):
    """Renews a session's lease.

    `running` lists all executions that the worker holds, including undelivered results; any others of the session
    are rescued. `progress` has the latest report of each running attempt.
    """

    session_id: UUID
    running: Annotated[list[UUID], msgspec.Meta(max_length=100_000)]
    draining: bool = False
    progress: Annotated[list[ProgressReport], msgspec.Meta(max_length=10_000)] = []
    usage: Annotated[list[JobUsage], msgspec.Meta(max_length=1_000)] = []
    """For a server that takes `usage`."""


class Beat(Response):
    """`gone` lists executions that the worker must drop: they belong to other sessions, or have ended."""

    lease_s: float
    cancels: list[UUID]
    gone: list[UUID] = []
    preempts: list[Preempt] = []


class CheckpointReport(Request, array_like=True):
    """The checkpoint of one attempt: where the next one would continue."""

    execution_id: UUID
    attempt: AttemptNumber
    value: Any


class SaveCheckpoints(Request, omit_defaults=True):
    """Checkpoints to save, and the credential of each one's attempt."""

    session_id: UUID
    checkpoints: Annotated[list[CheckpointReport], msgspec.Meta(max_length=1000)]
    credentials: Annotated[list[Name], msgspec.Meta(max_length=1000)] = []


class ReadCheckpoints(Request, omit_defaults=True):
    """Executions whose checkpoints to read, with the attempt that reads each of them, and its credential."""

    session_id: UUID
    executions: Annotated[list[UUID], msgspec.Meta(max_length=10_000)]
    attempts: Annotated[list[AttemptNumber], msgspec.Meta(max_length=10_000)] = []
    credentials: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []


class Checkpoints(Response):
    """Checkpoints of earlier attempts by execution; executions without one are omitted."""

    checkpoints: dict[UUID, Any]


class Declare(Request):
    """Jobs declared in a worker's code."""

    jobs: Annotated[list[JobSpec], msgspec.Meta(min_length=1, max_length=1000)]


class Declared(Response):
    """The outcome for one declared job, in the order of the request."""

    name: str
    change: Literal["created", "updated", "unchanged", "refused"]
    version: int | None = None
    problem: str | None = None
    warning: str | None = None
    """Set if the declaration replaced an edit by a user."""


class DeclareAnswer(Response):
    jobs: list[Declared]


class Begin(Request):
    """Begins an execution of a job that the session runs on its own: a command that something else has started."""

    session_id: UUID
    job: Name


class Begun(Response):
    """The execution, which is running; the session reports its result like any other."""

    execution_id: UUID
    attempt: int


class Goodbye(Request):
    """Ends a session. `lost`: its lease expired, and the attempts that still ran count as lost."""

    session_id: UUID
    lost: bool = False
