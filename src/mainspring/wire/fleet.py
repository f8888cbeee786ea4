"""Workers, schedulers, queues, limits and reserved capacity."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from mainspring.domain.bounds import Amounts, Name
from mainspring.domain.placement.isolation import MinIsolation
from mainspring.domain.queue import QueueSettings
from mainspring.wire.message import Instant, Request, Response

WorkerState = Literal["idle", "busy", "draining", "suspect", "lost", "offline"]
"""`suspect` sent no heartbeat for three quarters of its lease, `lost` let it expire, `offline` ended its session."""


class Worker(Response):
    worker_id: UUID
    name: str
    session_id: UUID
    state: WorkerState
    host: str
    version: str
    slots: int
    busy: int
    queues: list[str]
    kinds: list[str]
    labels: dict[str, str]
    started_at: datetime
    seen_at: datetime
    resources: dict[str, int] = {}
    shared: bool = False
    functions: list[str] | None = None
    """Its Python functions, the first 20 of `function_count`. Null: a worker that does not state them gets any."""
    function_count: int = 0
    modules: dict[str, str] = {}
    """Versions of its Python modules by name, at most 20."""


class DrainWorker(Request):
    """Lets a worker finish what it runs and claim nothing more."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class SchedulerProcess(Response):
    """A scheduler process; `lost`: its lease expired and its peers own its shards."""

    scheduler_id: UUID
    name: str
    state: Literal["active", "draining", "lost"]
    host: str
    version: str
    shards: int
    started_at: datetime
    seen_at: datetime


class Shard(Response):
    """A slice of the jobs and its owner. All fires that were due more than `lag_s` ago are decided."""

    shard: int
    owner: str | None
    epoch: int
    lease_expires_at: datetime | None
    watermark: datetime
    lag_s: float


class Shards(Response):
    schedulers: list[SchedulerProcess]
    shards: list[Shard]


class Queue(Response):
    """A queue: settings, backlog and running executions. Counts beyond 10,000 are estimated and not `exact`."""

    name: str
    settings: QueueSettings
    depth: int
    exact: bool
    by_priority: dict[str, int]
    oldest_s: float
    running: int
    workers: int
    slots: int


class Queues(Response):
    """All queues. `min_isolation` holds in each of them, in addition to its own."""

    items: list[Queue]
    limits: list[LimitState]
    min_isolation: MinIsolation = "none"


class AllQueues(Request):
    """What holds in all queues of the tenant."""

    min_isolation: MinIsolation


class QueueLoad(Response):
    """The load of a queue, for an autoscaler.

    `slots` counts those of live workers, `reserved` those reserved for this queue only. `wanted_slots` would run all
    waiting and running executions at `target` utilization, and those that messages of topics will start (`topic_lag`).
    """

    depth: int
    oldest_s: float
    running: int
    workers: int
    slots: int
    reserved: int
    utilization: float
    wanted_slots: int
    topic_lag: int = 0


class Scaling(Response):
    queues: dict[str, QueueLoad]


class LimitHolder(Response):
    execution_id: UUID
    job: str
    started_at: datetime


class LimitState(Response):
    """A concurrency or rate key in use, and the executions that hold it."""

    kind: Literal["concurrency", "rate"]
    key: str
    limit: int
    per_s: float | None
    next_at: datetime | None
    holders: list[LimitHolder]


class NewReservation(Request):
    """Capacity to reserve on workers: `slots`, each with all of `resources`, from `start_at` to `end_at`.

    It serves the whole tenant, a `queue`, or a `job` by name or id. `anyway` accepts it although no current worker
    has the capacity.
    """

    name: Name
    start_at: Instant
    end_at: Instant
    slots: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    resources: Amounts = {}
    labels: Annotated[dict[Name, Name], msgspec.Meta(max_length=100)] = {}
    queue: Name | None = None
    job: Name | None = None
    shared: bool = False
    anyway: bool = False
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Reservation(Response):
    """A reservation. `places` maps workers to the number of slots currently reserved on each."""

    reservation_id: UUID
    name: str
    start_at: datetime
    end_at: datetime
    slots: int
    resources: dict[str, int]
    labels: dict[str, str]
    queue: str | None
    job: str | None
    shared: bool
    begun: bool
    places: dict[str, int]
    reason: str
    created_at: datetime
    created_by: str
    warnings: list[str] = []


class NewDurationRequest(Request):
    """A timeout above the maximum of a queue that a job is to have. The job, by name, need not exist yet."""

    job: Name
    queue: Name
    timeout: Name
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class DurationDecision(Request):
    approved: bool
    note: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class DurationRequest(Response):
    """A request for a timeout above the maximum of a queue. Once approved, every writer of the job may use it."""

    request_id: UUID
    job: str
    queue: str
    timeout: str
    reason: str
    state: Literal["requested", "approved", "refused", "withdrawn"]
    requested_at: datetime
    requested_by: str
    decided_at: datetime | None
    decided_by: str | None
    note: str


class NewWorkerToken(Request):
    """A token for workers. Each grant is a name, or a prefix that ends in `*`; `*` alone grants everything.

    A label is granted as `key=value`. `expires_in` is a duration such as `90d`; null: never.
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    queues: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=100)]
    labels: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    kinds: Annotated[list[Name], msgspec.Meta(max_length=100)] = []
    """Empty: every kind."""
    expires_in: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class WorkerToken(Response):
    """A new token. `token` is shown only here: the server keeps its digest."""

    name: str
    token: str
    queues: list[str]
    labels: list[str]
    kinds: list[str]
    expires_at: datetime | None
