"""Ports: what other engines can implement, and what each must guarantee. PostgreSQL is the default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import Look

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
        """Register this scheduler until the end of the process. Returns at once and never raises."""

    def gone(self) -> frozenset[UUID]:
        """The schedulers that were registered and no longer are; empty while the engine is unavailable."""

    async def fence(self) -> int:
        """Return a number larger than all that were returned before, to any process; 0 if the engine is unavailable."""

    async def leave(self) -> None:
        """End the registration, so that the peers see it at once."""


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


class FilePlaces(Protocol):
    """Folders and object stores, where triggers look for files. All scheduler processes must see the same content.

    A look lists matching files after a path in the order of their paths, a bounded number at a time. It raises
    CannotLook if the place is outside of `root`, cannot be read, or does not respond within `within_s`.
    """

    async def look(
        self, place: str, *, root: str, pattern: FilePattern, after: str | None, within_s: float
    ) -> Look: ...
