"""What may be replaced by another engine, and what each must guarantee. PostgreSQL is the default of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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
