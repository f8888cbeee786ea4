"""Delivers the outbox: at least once, in order per channel and stream, with backoff.

A message is taken under a lease and sent with an id that never changes. If the process dies between sending and
recording that, the message is sent again with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.alerts.format import Notification
from mainspring.alerts.send import TIMEOUT_S, Sender
from mainspring.alerts.targets import opened
from mainspring.clock import instant, millis
from mainspring.domain.errors import Conflict
from mainspring.domain.silence import Silence, silenced_until
from mainspring.service import Loops, Service
from mainspring.store import outbox, silences
from mainspring.store.db import Database
from mainspring.store.outbox import Message, Sent, StreamKey
from mainspring.telemetry import metrics
from mainspring.vault.vault import Vault

log = structlog.get_logger()

BATCH = 32
MAX_STREAMS = 2_000
"""Streams read at a time."""
LEASE_S = TIMEOUT_S * 2 + 15
"""Longer than any try takes, so that no message is sent twice at the same time."""
BACKOFF_S = (5.0, 600.0)
GIVE_UP_S = 24 * 3600.0
"""A message that was refused for a day is dropped, and a channel that failed for a day is disabled."""
FALLBACK_S = 30.0
STAND_BY_S = 1.0
MIN_WAIT_S = 0.05
CLEANUP_S = 600.0
MAX_HOLD_S = 3600.0
"""A message held back by a silence is checked again after this long at most."""


class Deliverer(Service):
    """The delivery loop of the leader. Every step may be repeated at any point."""

    def __init__(
        self, database: Database, vault: Vault, bus: ports.Bus, sender: Sender, *, leads: Callable[[], bool]
    ) -> None:
        self._database = database
        self._vault = vault
        self._sender = sender
        self._leads = leads
        self._after = outbox.FIRST_STREAM
        self._sending: set[UUID] = set()
        self._wake = asyncio.Event()
        self._cleaned = float("-inf")
        self._loops = Loops("deliverer")
        bus.subscribe(ports.OUTBOX, lambda _: self._wake.set(), on_gap=self._wake.set)

    async def start(self) -> None:
        self._loops.forever("deliver", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        if not self._leads():
            await asyncio.sleep(STAND_BY_S)
            return
        self._wake.clear()
        batch = await take(self._database, after=self._after, busy=self._sending)
        self._after = batch.after
        for channel_id in {message.channel_id for message in batch.messages}:
            mine = [message for message in batch.messages if message.channel_id == channel_id]
            self._sending.add(channel_id)
            self._loops.spawn(self._send(channel_id, mine, batch.silences), "send")
        if batch.messages:
            return
        await self._clean_up()
        if batch.after != outbox.FIRST_STREAM:
            await asyncio.sleep(MIN_WAIT_S)  # too many streams for one read
            return
        wait_s = FALLBACK_S if batch.wait_s is None else min(FALLBACK_S, batch.wait_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait_s)

    async def _send(self, channel_id: UUID, messages: list[Message], silenced: list[Silence]) -> None:
        """Send the messages of one channel, so that a slow receiver delays no other channel."""
        try:
            await send_all(self._database, self._vault, self._sender, messages, silenced)
        except Exception as error:  # their leases expire, and they are sent again
            log.warning("delivery.not_recorded", channel=messages[0].channel, error=repr(error))
        finally:
            self._sending.discard(channel_id)
            self._wake.set()

    async def _clean_up(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._cleaned >= CLEANUP_S:
            self._cleaned = now
            async with self._database.connection() as connection:
                await outbox.forget_messages(connection, limit=10_000)


@dataclass(frozen=True, slots=True)
class DeliveryBatch:
    """Messages to send, the silences in force, the wait until more is due, and the stream to continue after."""

    messages: list[Message]
    silences: list[Silence]
    wait_s: float | None
    after: StreamKey


async def take(
    database: Database, *, after: StreamKey = outbox.FIRST_STREAM, busy: Collection[UUID] = ()
) -> DeliveryBatch:
    """Take the messages that are due, except those of busy channels."""
    async with database.connection() as connection:
        found = await outbox.pending_heads(connection, after=after, limit=MAX_STREAMS)
        heads = [head for head in found if head.stream[0] not in busy]
        due = [head for head in heads if head.wait_s <= 0]
        ids = [head.message_id for head in due[:BATCH]]
        messages = await outbox.take_messages(connection, message_ids=ids, lease_s=LEASE_S) if ids else []
        silenced = await silences.open_silences(connection) if messages else []
    position = found[-1].stream if len(found) == MAX_STREAMS else outbox.FIRST_STREAM
    if len(due) > BATCH:
        position = due[BATCH - 1].stream  # the next batch continues here
    wait_s = min((max(MIN_WAIT_S, head.wait_s) for head in heads), default=None)
    return DeliveryBatch(messages, silenced, wait_s, position)


async def send_all(
    database: Database, vault: Vault, sender: Sender, messages: list[Message], silenced: list[Silence]
) -> None:
    """Send messages and record the results. Disables channels that have failed for too long."""
    # At most one message of each stream is here, so they can be sent concurrently.
    outcomes = await asyncio.gather(*(_try(database, vault, sender, message, silenced) for message in messages))
    if "failed" in outcomes:
        async with database.connection() as connection:
            for name, error in await outbox.disable_failing(connection, longer_than_s=GIVE_UP_S):
                log.error("channel.disabled", channel=name, error=error)


async def deliver(
    database: Database, vault: Vault, sender: Sender, *, after: StreamKey = outbox.FIRST_STREAM
) -> DeliveryBatch:
    """Take one batch and send it."""
    batch = await take(database, after=after)
    await send_all(database, vault, sender, batch.messages, batch.silences)
    return batch


async def _try(database: Database, vault: Vault, sender: Sender, message: Message, silenced: list[Silence]) -> str:
    now_ms = millis(message.tried_at)
    until_ms = _silenced_until(message, silenced, now_ms)
    if until_ms is not None:
        async with database.connection() as connection:
            await outbox.hold_message(
                connection, message=message, until=instant(min(until_ms, now_ms + MAX_HOLD_S * 1000))
            )
        return "held"
    sent = await _send(database, vault, sender, message)
    async with database.connection() as connection:
        if sent.error is None:
            await outbox.message_sent(connection, message=message, sent=sent)
        else:
            await outbox.message_failed(
                connection, message=message, sent=sent, retry_s=backoff_s(message.tries), give_up_s=GIVE_UP_S
            )
    outcome = "sent" if sent.error is None else "failed"
    metrics.ALERT_DELIVERIES.labels(message.kind, outcome).inc()
    if sent.error is not None:
        log.warning("delivery.failed", channel=message.channel, of=message.event, error=sent.error)
    return outcome


async def _send(database: Database, vault: Vault, sender: Sender, message: Message) -> Sent:
    """Open the channel's secrets and send; secrets that are not available are a failed try."""
    try:
        target = await opened(database, vault, message.stored)
    except Conflict as error:
        return Sent(None, None, 0, error.message)
    return await sender.send(
        target, Notification(message.event, str(message.event_id), message.created_at, message.body)
    )


def backoff_s(tries: int) -> float:
    least, most = BACKOFF_S
    return float(min(most, least * 2 ** min(tries - 1, 20)))


def _silenced_until(message: Message, silenced: list[Silence], now_ms: int) -> int | None:
    """Return until when a silence holds the message back: only notifications of jobs.

    Alerts are checked against silences before they are written, and subscribed events are never held back.
    """
    if not message.event.startswith("job."):
        return None
    labels = {name: str(value) for name, value in message.body.items() if name in ("job", "queue")}
    return silenced_until(silenced, labels | {"rule": message.event}, tenant=message.tenant, now_ms=now_ms)
