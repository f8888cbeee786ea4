"""Ports: what other engines can implement, and what each must guarantee. PostgreSQL is the default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from mainspring import wire
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.topic import Message, TopicSource
from mainspring.domain.watch import Look
from mainspring.wire.ready_execution import ReadyRef

QUEUED = "mainspring_queued"
"""Executions were queued: `<line> <lowest rank>`; from an older process, the queue."""
FREED = "mainspring_freed"
"""A concurrency key has a free slot or a new limit; the payload is its id."""
SETTINGS = "mainspring_settings"
"""Settings of a queue or tenant changed; the payload is the tenant."""
SHARDS = "mainspring_shards"
"""`edit <shard>`: a job of that shard was edited. `wait <ms>`: an execution waits until then."""
WAIT = "wait"
OWNERS = "mainspring_owners"
"""Shards changed owner; the payload is the new owner, `free`, or `join` when a scheduler has started."""
CANCEL = "mainspring_cancel"
"""A running execution must be cancelled; the payload is its session."""
FUNCTIONS = "mainspring_functions"
"""A worker has stated other functions than before; the payload is its session."""
BACKFILLS = "mainspring_backfills"
"""A backfill was created, paused, resumed or cancelled."""
REPLAYS = "mainspring_replays"
"""A dead letter was replayed."""
SUBMISSIONS = "mainspring_submissions"
"""A client has committed a transactional submission. Sent by function `submit` of the schema."""
RUNS = "mainspring_runs"
"""`wake`: a step or run has a new timer, which may be the earliest. `needs`: what jobs need was edited."""
WAKE, NEEDS = "wake", "needs"
TRIGGERS = "mainspring_triggers"
"""`wake`: deliveries to triggers are to be decided. `edit`: a trigger was edited."""
EDIT = "edit"
CHANNELS = "mainspring_channels"
"""A channel, or the notifications of a job, were edited."""
OUTBOX = "mainspring_outbox"
"""The outbox has new deliveries."""
EVENTS = "mainspring_events"
"""Events for live views; the payload is a list of events of domain/events.py."""
WATCHING = "mainspring_watching"
"""A process has live views and wants events for some seconds; the payload identifies the process."""
AUDIT = "mainspring_audit"
"""The audit log has new entries to chain."""

CREDENTIALS = "mainspring_credentials"
"""A token was revoked or a browser session ended; the payload is its id."""


class Bus(Protocol):
    """Wake-ups between processes. They are hints: a lost one costs latency, never an execution.

    Every subscriber receives what is published after `subscribe` has returned, unless the engine was unavailable or
    the publishing process died. When the engine is available again, `on_gap` is called so that the subscriber checks
    for what it missed.
    """

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None: ...

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        """Deliver to the subscribers of this process at once and, unless `only_here`, to the other processes soon.

        With `lowest`, the message is `<payload> <lowest>`. Of several with the same payload that wait to be sent, only
        the one with the lowest number is. Never raises.
        """


class Coordinator(Protocol):
    """Knows which schedulers are alive, before their leases in the database expire.

    It only speeds up the decision that a peer is gone, and raises epochs. Who owns a shard is decided in the database,
    so an engine that is unavailable, empty or wrong costs time, never a fire.
    """

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when a scheduler has joined or is gone. Call it before `join`."""

    async def join(self, scheduler_id: UUID, name: str) -> None:
        """Register this scheduler until the end of the process. Returns after the first try.

        An unavailable engine is no error; raises Invalid if the engine refuses the credentials.
        """

    def gone(self) -> frozenset[UUID]:
        """The schedulers that were registered and no longer are; empty while the engine is unavailable."""

    async def fence(self) -> int:
        """Return a number larger than all that were returned before, to any process; 0 if the engine is unavailable."""

    async def leave(self) -> None:
        """End the registration, so that the peers see it at once."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What a read-ahead had up to now, and when to promote again; None: nothing waits."""

    due: int
    next_ms: int | None


class Delays(Protocol):
    """The next due instants of waiting executions, read ahead from the database by the owner of their shard.

    A hint: an engine that is unavailable or empty costs a read of the database, and so does an instant that it lacks. A
    read-ahead belongs to one shard and epoch, so that a former owner cannot change that of its successor.
    """

    def keep(self, ahead: Mapping[tuple[int, int], Sequence[int]], *, ends: Mapping[tuple[int, int], int]) -> None:
        """Replace the instants of (shard, epoch). From `ends` on, more may wait; no end: nothing else waits.

        Never raises.
        """

    async def take(self, owned: Iterable[tuple[int, int]], now_ms: int) -> Upcoming | None:
        """Remove what is due; None: the read-ahead of some shard has ended, or the engine is unavailable."""


@dataclass(frozen=True, slots=True)
class DueInstant:
    """One instant of one schedule in one shard, under the epoch of the scheduler that wants to decide it."""

    shard: int
    epoch: int
    schedule_id: int
    fire_ms: int


class FireLock(Protocol):
    """A second net below the shard rows: one lock for each instant of a schedule in a shard, for some seconds.

    A later epoch takes the lock of an earlier one, so the lock never delays a successor. While the engine is
    unavailable, the row of the shard decides alone. The caller asks the rows whether a refusal is true.
    """

    async def refused(self, fires: Sequence[DueInstant]) -> set[int]:
        """Lock these instants; return the shards of which another scheduler with a later epoch holds one."""


class EngineLost(ConnectionError):
    """An optional engine does not respond, or refuses a command. The caller works without it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a lookup: when it was made, by the clock of the cache in µs, and the entry's age and value."""

    at: int
    age_s: float = 0.0
    value: bytes | None = None


class Cache(Protocol):
    """Responses shared by api processes. Labels say what an entry shows; a change removes the entries with its labels.

    Calls of one process take effect in their order. So a lookup after `changed` never finds what that call removed, and
    no lookup finds an entry that is older than `oldest_s`.
    """

    async def look(self, key: Hashable, *, oldest_s: float) -> Found | None:
        """Return the entry of this key, if there is a valid one; None if the engine is unavailable."""

    def keep(self, key: Hashable, value: bytes, labels: Iterable[Hashable], *, began: int, oldest_s: float) -> None:
        """Store a value that was read after the lookup at `began`. Never raises."""

    def changed(self, labels: Iterable[Hashable]) -> None:
        """Remove the entries with any of these labels. Never raises."""

    def clear(self) -> None:
        """Ignore what is in the cache now: messages about changes may have been lost."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A rate of one key: a request each `gap_s` on average, and requests worth `ahead_s` at once."""

    key: str
    gap_s: float
    ahead_s: float


@dataclass(frozen=True, slots=True)
class RateTaken:
    """How long to wait for the next request of a budget (0: it was counted), and how much of `ahead_s` is used."""

    wait_s: float
    used_s: float


class RateLimit(Protocol):
    """Budgets that all api processes share."""

    async def take(self, budgets: Sequence[Budget]) -> list[RateTaken] | None:
        """Count a request against each budget in turn, up to the first that is used up; None: engine unavailable."""


@dataclass(frozen=True, slots=True)
class SignedRecord:
    """Results of one session as they travel in a result stream, with the session's signature."""

    session_id: UUID
    value: bytes
    signature: bytes


class ResultStream(Protocol):
    """Keeps results while the api or the database is unavailable: at least once, in the order of each session.

    The database decides what a result changes, so a repeated, late or forged record changes nothing.
    """

    async def append(self, record: SignedRecord) -> None:
        """Store a record. It is durable when this returns; raises Unavailable if it may not be."""

    def settle_with(self, settle: Callable[[Sequence[SignedRecord]], Awaitable[None]]) -> None:
        """Give every record to `settle`, again if it raises. A record counts as settled when it has returned."""

    async def drained(self) -> None:
        """Return once all records that were appended before are settled, or the engine is unavailable."""


class EventStream(Protocol):
    """Receives every event of the outbox: at least once, events with the same key in their order."""

    async def publish(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Store events with their keys. They are durable when this returns; raises Unavailable if any may not be."""

    @property
    def available(self) -> bool:
        """Whether the engine responds now."""


class Queue(Protocol):
    """Carries queued executions to dispatchers: may lose, repeat and reorder them. PostgreSQL decides what starts."""

    async def publish(self, ready: Sequence[tuple[int, UUID, bytes]]) -> None:
        """Publish records with the priority and the job of each. Raises Unavailable if any may be missing."""

    def deliver_to(self, deliver: Callable[[Sequence[ReadyRef]], None]) -> None:
        """Call `deliver` with what arrives. Each record reaches one dispatcher. Call it before `start`."""

    @property
    def available(self) -> bool:
        """Whether the engine responds now."""


class TopicReading(Protocol):
    """A topic that is being read for a trigger."""

    async def stop(self) -> None: ...

    async def lag(self) -> int:
        """How many messages are not decided yet. Raises Unavailable."""


class Topics(Protocol):
    """Topics of message brokers, read at least once, the messages of a partition in their order."""

    def open(
        self,
        source: TopicSource,
        *,
        group: str,
        since_ms: float | None,
        handle: Callable[[list[Message]], Awaitable[None]],
    ) -> TopicReading:
        """Give messages to `handle`, again if it raises. A new group begins at `since_ms`, or at the oldest message.

        Members of a group share the partitions. Raises Unavailable if the cluster is not configured.
        """


class Reservation(Protocol):
    """Free slots of waiting workers, reserved for executions of one line that are about to be written."""

    @property
    def sessions(self) -> Sequence[UUID]:
        """The session of each slot; one with several slots occurs several times. Possibly empty."""

    async def assign(self, rows: Sequence[Any], connection: Any = None) -> None:
        """Send executions to their workers. Call it after the commit that set the rows to running.

        `connection` reads definitions that are not cached; None: another one does.
        """


class DirectHandoff(Protocol):
    """Gives new executions to workers that already wait at this process, without a pass through the queue.

    Only a hint: the statement that writes an execution checks that the session is still alive.
    """

    def reserve(self, line_id: int, count: int, *, tenant: int) -> AbstractContextManager[Reservation]:
        """Reserve up to `count` slots for executions of this line until the block ends. Queue the other executions."""


class ArtifactStore(Protocol):
    """Storage for the content of artifacts. All api processes must use the same one.

    A key is written once. `put` stores all chunks or nothing, durably when it returns. `get` raises FileNotFoundError
    for a key that was deleted or never written. `delete` is idempotent.
    """

    async def put(self, key: UUID, chunks: AsyncIterator[bytes]) -> None: ...

    async def get(self, key: UUID) -> AsyncIterator[bytes]: ...

    async def delete(self, key: UUID) -> None: ...

    async def sweep(self) -> None:
        """Remove the remains of interrupted uploads, if the engine leaves any."""


class ArchivedPage(Protocol):
    """Executions of the archive, newest first. `complete_above`: only executions above this id were looked for."""

    @property
    def items(self) -> list[wire.Execution]: ...

    @property
    def complete_above(self) -> UUID | None: ...


class Archive(Protocol):
    """Reads executions and output of days that are only in the archive. A tenant gets nothing of another one.

    Each read is bounded in bytes and time. It raises Unavailable if the archive cannot be read.
    """

    async def execution(self, database: Any, execution_id: UUID, *, tenant: int) -> wire.Execution | None:
        """An execution with its attempts; None if the archive does not have it."""

    async def page(
        self,
        database: Any,
        *,
        tenant: int,
        above: UUID,
        before: UUID,
        limit: int,
        job_id: UUID | None = None,
        states: Sequence[str] = (),
    ) -> ArchivedPage:
        """The latest executions between two ids."""

    async def output(
        self, database: Any, execution_id: UUID, *, tenant: int
    ) -> list[tuple[int, int, wire.Stream, bytes, datetime | None]]:
        """All chunks of output in order: attempt, sequence number, stream, data, and when it was stored."""


class FilePlaces(Protocol):
    """Folders and object stores, where triggers look for files. All scheduler processes must see the same content.

    A look lists matching files after a path in the order of their paths, a bounded number at a time. It raises
    CannotLook if the place is outside of `root`, cannot be read, or does not respond within `within_s`.
    """

    async def look(
        self, place: str, *, root: str, pattern: FilePattern, after: str | None, within_s: float
    ) -> Look: ...
