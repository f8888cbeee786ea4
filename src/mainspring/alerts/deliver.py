"""Delivers the outbox: at least once, in order per channel and stream, with backoff.

A message is taken under a lease and sent with an id that never changes. Whoever dies between sending and writing
that down leaves it to be sent again, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from mainspring import ports
from mainspring.alerts.send import TIMEOUT_S, Sender
from mainspring.alerts.shape import Note
from mainspring.clock import instant, millis
from mainspring.domain.silence import Silence, silenced_until
from mainspring.service import Loops
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


class Deliverer:
    """The loop, on the leader; `deliver` does the work and may be repeated at any point."""

    def __init__(self, database: Database, bus: ports.Bus, sender: Sender, *, leads: Callable[[], bool]) -> None:
        self._database = database
        self._sender = sender
        self._leads = leads
        self._place = outbox.START
        self._called = asyncio.Event()
        self._kept = float("-inf")
        self._loops = Loops("deliverer")
        bus.subscribe(ports.OUTBOX, lambda _: self._called.set(), on_gap=self._called.set)

    async def start(self) -> None:
        self._loops.forever("deliver", self._step)

    async def ready(self) -> None:
        return

    async def drain(self) -> None:
        return

    async def stop(self) -> None:
        await self._loops.stop()

    async def _step(self) -> None:
        if not self._leads():
            await asyncio.sleep(STAND_BY_S)
            return
        self._called.clear()
        turn = await deliver(self._database, self._sender, after=self._place)
        self._place = turn.after
        if turn.tried:
            return
        await self._keep()
        wait_s = NET_S if turn.wait_s is None else min(NET_S, turn.wait_s)
        if turn.after != outbox.START:
            await asyncio.sleep(LEAST_S)  # so much waits that it is looked at in portions
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._called.wait(), max(LEAST_S, wait_s))

    async def _keep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._kept >= UPKEEP_S:
            self._kept = now
            async with self._database.connection() as connection:
                await outbox.forget_messages(connection, limit=10_000)


@dataclass(frozen=True, slots=True)
class Turn:
    """How many were tried, how long until the next is due as far as was looked, and where to look next."""

    tried: int
    wait_s: float | None
    after: Place


async def deliver(database: Database, sender: Sender, *, after: Place = outbox.START) -> Turn:
    """Sends what is due, once. Disables what has failed for too long."""
    async with database.connection() as connection:
        heads = await outbox.pending_heads(connection, after=after, limit=HEADS)
        due = [head.message_id for head in heads if head.wait_s <= 0][:BATCH]
        messages = await outbox.take_messages(connection, message_ids=due, lease_s=LEASE_S) if due else []
        held = await silences.open_silences(connection) if messages else []
    # Different streams do not wait for one another; of one stream there is only one message here.
    outcomes = await asyncio.gather(*(_try(database, sender, message, held) for message in messages))
    if "failed" in outcomes:
        async with database.connection() as connection:
            for name, error in await outbox.disable_failing(connection, longer_than_s=GIVE_UP_S):
                log.error("channel.disabled", channel=name, error=error)
    wait_s = min((max(LEAST_S, head.wait_s) for head in heads), default=None)
    return Turn(len(messages), wait_s, heads[-1].place if len(heads) == HEADS else outbox.START)


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
