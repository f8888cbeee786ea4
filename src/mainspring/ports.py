"""What may be replaced by another engine, and what each must guarantee. PostgreSQL is the default of all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol
from uuid import UUID

QUEUED = "mainspring_queued"
"""Something was queued: `<line> <lowest rank>`; from an older program, the queue."""
FREED = "mainspring_freed"
"""A slot of a concurrency key is free, or the key has another limit; the payload is its id."""
SETTINGS = "mainspring_settings"
"""A queue or a tenant was given other settings; the payload is the tenant."""
SHARDS = "mainspring_shards"
"""`edit <shard>`: a job of that shard was edited. `wait <ms>`: an execution waits until then."""
OWNERS = "mainspring_owners"
"""Shards have changed hands; the payload is their new owner, `free`, or `join` when a scheduler has come."""
CANCEL = "mainspring_cancel"
"""A running execution shall be cancelled; the payload is the session that runs it."""
BACKFILLS = "mainspring_backfills"
"""A backfill was made, paused, resumed or cancelled."""
REPLAYS = "mainspring_replays"
"""A dead letter was replayed."""
RUNS = "mainspring_runs"
"""A step or a run has a time at which it is to be looked at, earlier maybe than any before."""
CHANNELS = "mainspring_channels"
"""A channel, or what a job tells its channels, was edited."""
OUTBOX = "mainspring_outbox"
"""Something is to be sent."""
EVENTS = "mainspring_events"
"""Something people may be watching happened; the payload is an event of domain/events.py."""


class Bus(Protocol):
    """Wake-ups between processes. A hint, never the truth: losing one costs latency, never an execution.

    Every subscriber hears what is published after `subscribe` returned, unless the engine was away meanwhile;
    when it comes back, `on_gap` is called so that the subscriber looks for what it may have missed.
    """

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None: ...

    async def publish(self, channel: str, payload: str) -> None: ...


class IdleWorker(Protocol):
    """A session with an open poll and a free slot, reserved for one caller."""

    @property
    def session_id(self) -> UUID: ...

    async def assign(self, row: Any) -> None:
        """Send the execution to the worker. Call it after the commit that set the row to running."""


class DirectHandoff(Protocol):
    """Gives a new execution to a worker that already polls this process, without a pass through the queue.

    Only a hint: the statement that writes the execution checks that the session is still alive.
    """

    def reserve_worker(self, line_id: int, *, tenant: int) -> AbstractAsyncContextManager[IdleWorker | None]:
        """Reserve a worker for one execution of this line until the block ends. None: queue the execution."""


class ArtifactStore(Protocol):
    """Where the bytes of artifacts are. All api processes must use the same one.

    A key is written once. `put` keeps all pieces or nothing, and has them safe when it returns; what is deleted, or was
    never put, is FileNotFoundError. Deleting twice does no harm.
    """

    async def put(self, key: UUID, pieces: AsyncIterator[bytes]) -> None: ...

    async def get(self, key: UUID) -> AsyncIterator[bytes]: ...

    async def delete(self, key: UUID) -> None: ...

    async def sweep(self) -> None:
        """Removes what uploads left that were cut off, if anything stays of them."""
