"""Delivers the outbox: at least once, in order per channel and stream, with backoff.

A message is taken under a lease and sent with an id that never changes. Whoever dies between sending and writing
that down leaves it to be sent again, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.alerts.format import Note
from mainspring.alerts.send import TIMEOUT_S, Sender
from mainspring.clock import instant, millis
from mainspring.domain.silence import Silence, silenced_until
from mainspring.service import Loops, Service
from mainspring.store import outbox, silences
from mainspring.store.db import Database
from mainspring.store.outbox import Message, Place
from mainspring.telemetry import metrics

log = structlog.get_logger()

BATCH = 32
HEADS = 2_000
"""So many streams are looked at in one turn."""
LEASE_S = TIMEOUT_S * 2 + 15
"""Longer than any try takes, so nobody sends beside one that still lives."""
BACKOFF_S = (5.0, 600.0)
GIVE_UP_S = 24 * 3600.0
"""A message that nobody took for a day is given up, and a channel that took nothing for a day is disabled."""
NET_S = 30.0
STAND_BY_S = 1.0
LEAST_S = 0.05
UPKEEP_S = 600.0
HELD_S = 3600.0
"""So long, at most, until a message that a silence holds back is looked at again."""


class Deliverer(Service):
    """The loop, on the leader; `deliver` does the work and may be repeated at any point."""

    def __init__(self, database: Database, bus: ports.Bus, sender: Sender, *, leads: Callable[[], bool]) -> None:
        self._database = database
        self._sender = sender
        self._leads = leads
        self._place = outbox.START
        self._sending: set[UUID] = set()
        self._called = asyncio.Event()
        self._kept = float("-inf")
        self._loops = Loops("deliverer")
        bus.subscribe(ports.OUTBOX, lambda _: self._called.set(), on_gap=self._called.set)

    async def start(self) -> None:
        self._loops.forever("deliver", self._step)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        if not self._leads():
            await asyncio.sleep(STAND_BY_S)
            return
        self._called.clear()
        turn = await take(self._database, after=self._place, busy=self._sending)
        self._place = turn.after
        for channel_id in {message.channel_id for message in turn.messages}:
            mine = [message for message in turn.messages if message.channel_id == channel_id]
            self._sending.add(channel_id)
            self._loops.spawn(self._send(channel_id, mine, turn.held), "send")
        if turn.messages:
            return
        await self._keep()
        if turn.after != outbox.START:
            await asyncio.sleep(LEAST_S)  # so much waits that it is looked at in portions
            return
        wait_s = NET_S if turn.wait_s is None else min(NET_S, turn.wait_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._called.wait(), wait_s)

    async def _send(self, channel_id: UUID, messages: list[Message], held: list[Silence]) -> None:
        """One channel's share: a receiver that hangs holds up nobody else."""
        try:
            await send_all(self._database, self._sender, messages, held)
        except Exception as error:  # their leases end, and they are tried again
            log.warning("could not write down what was sent", channel=messages[0].channel, error=repr(error))
        finally:
            self._sending.discard(channel_id)
            self._called.set()

    async def _keep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._kept >= UPKEEP_S:
            self._kept = now
            async with self._database.connection() as connection:
                await outbox.forget_messages(connection, limit=10_000)


@dataclass(frozen=True, slots=True)
class Turn:
    """What was taken, with the silences of that moment; how long until more is due, and where to look next."""

    messages: list[Message]
    held: list[Silence]
    wait_s: float | None
    after: Place


async def take(database: Database, *, after: Place = outbox.START, busy: Collection[UUID] = ()) -> Turn:
    """Takes what is due, but for channels that are busy."""
    async with database.connection() as connection:
        found = await outbox.pending_heads(connection, after=after, limit=HEADS)
        heads = [head for head in found if head.place[0] not in busy]
        due = [head for head in heads if head.wait_s <= 0]
        ids = [head.message_id for head in due[:BATCH]]
        messages = await outbox.take_messages(connection, message_ids=ids, lease_s=LEASE_S) if ids else []
        held = await silences.open_silences(connection) if messages else []
    place = found[-1].place if len(found) == HEADS else outbox.START
    if len(due) > BATCH:
        place = due[BATCH - 1].place  # the others' turn is next
    return Turn(messages, held, min((max(LEAST_S, head.wait_s) for head in heads), default=None), place)


async def send_all(database: Database, sender: Sender, messages: list[Message], held: list[Silence]) -> None:
    """Sends them and writes down what came of it. Disables what has failed for too long."""
    # Of one stream there is only one message here, so they need not wait for one another.
    outcomes = await asyncio.gather(*(_try(database, sender, message, held) for message in messages))
    if "failed" in outcomes:
        async with database.connection() as connection:
            for name, error in await outbox.disable_failing(connection, longer_than_s=GIVE_UP_S):
                log.error("channel.disabled", channel=name, error=error)


async def deliver(database: Database, sender: Sender, *, after: Place = outbox.START) -> Turn:
    """One turn by itself: takes what is due, and sends it."""
    turn = await take(database, after=after)
    await send_all(database, sender, turn.messages, turn.held)
    return turn


async def _try(database: Database, sender: Sender, message: Message, held: list[Silence]) -> str:
    now_ms = millis(message.tried_at)
    until_ms = _held_until(message, held, now_ms)
    if until_ms is not None:
        async with database.connection() as connection:
            await outbox.hold_message(connection, message=message, until=instant(min(until_ms, now_ms + HELD_S * 1000)))
        return "held"
    sent = await sender.send(
        message.target, Note(message.event, str(message.event_id), message.created_at, message.body)
    )
    async with database.connection() as connection:
        if sent.error is None:
            await outbox.message_sent(connection, message=message, sent=sent)
        else:
            await outbox.message_failed(
                connection, message=message, sent=sent, again_s=backoff_s(message.tries), give_up_s=GIVE_UP_S
            )
    outcome = "sent" if sent.error is None else "failed"
    metrics.ALERT_DELIVERIES.labels(message.kind, outcome).inc()
    if sent.error is not None:
        log.warning("a channel did not take a notice", channel=message.channel, of=message.event, error=sent.error)
    return outcome


def backoff_s(tries: int) -> float:
    least, most = BACKOFF_S
    return float(min(most, least * 2 ** min(tries - 1, 20)))


def _held_until(message: Message, held: list[Silence], now_ms: int) -> int | None:
    """Notices of jobs wait for the end of a silence. Alerts are judged before they are written, and what a program
    subscribed to is never held back."""
    if not message.event.startswith("job."):
        return None
    labels = {name: str(value) for name, value in message.body.items() if name in ("job", "queue")}
    return silenced_until(held, labels | {"rule": message.event}, tenant=message.tenant, now_ms=now_ms)
