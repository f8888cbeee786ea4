"""Topics: messages start executions, one for each message or batch.

The position of a trigger in each partition moves in the transaction that inserts the execution. So a message that is
read again, after a crash or by two processes, starts nothing; what the broker knows of positions only saves reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from mainspring import wire
from mainspring.codec import decode
from mainspring.domain.errors import MainspringError
from mainspring.domain.topic import MAX_BATCH_BYTES, MAX_MESSAGE_BYTES, Message, TopicSource
from mainspring.intake.triggers.decide import Arrival, Decision, decide, refusal
from mainspring.intake.triggers.deliver import settle
from mainspring.store import trigger_files, trigger_topics, triggers
from mainspring.store.db import AWAY, Connection, Database
from mainspring.store.triggers import TriggerRow
from mainspring.telemetry import metrics

log = structlog.get_logger()

CONCURRENT_PARTITIONS = 4


class Held(Exception):
    """Nothing may start now: the messages wait. The text says why."""


class Edited(Exception):
    """The trigger was edited, paused or deleted, or another process has read these messages."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages of one partition that are decided together. `refused`: why they start nothing."""

    messages: Sequence[Message]
    bodies: Sequence[Any] = ()
    refused: str | None = None

    @property
    def arrival(self) -> Arrival:
        first, last = self.messages[0], self.messages[-1]
        shown = [message.values(body) for message, body in zip(self.messages, self.bodies, strict=bool(self.bodies))]
        name = first.name if len(self.messages) == 1 else f"{first.name}-{last.offset}"
        values = {"body": shown[0]["body"], "message": shown[0], "messages": shown} if shown else {}
        return Arrival(f"{name} {first.topic_key}", name, values)


async def take(database: Database, trigger: TriggerRow, messages: Iterable[Message]) -> None:
    """Decide messages that were read. Those of a partition are in their order. Raises Held or Edited."""
    source = trigger.spec.source
    assert isinstance(source, TopicSource)
    partitions: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        partitions.setdefault((message.topic_key, message.partition), []).append(message)
    slots = asyncio.Semaphore(CONCURRENT_PARTITIONS)

    async def in_order(found: list[Message]) -> None:
        async with slots:
            await _take_partition(database, trigger, source, found)

    outcomes = await asyncio.gather(*map(in_order, partitions.values()), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def topic_sample(source: TopicSource, sample: wire.TriggerSample) -> Arrival:
    """A message for a dry run, with the body and headers that the user describes."""
    headers = {name: value.encode() for name, value in sample.headers.items()}
    message = Message(source.topic, "", 0, 0, "1970-01-01T00:00:00Z", b"", headers, b"")
    return Unit([message], [{} if sample.body is None else sample.body]).arrival


def units(source: TopicSource, messages: Sequence[Message]) -> Iterator[Unit]:
    """Split the messages of a partition into those that start an execution together, and those that cannot."""
    batch: list[Message] = []
    bodies: list[Any] = []
    size = 0
    for message in messages:
        try:
            body = decode(message.value, Any, limit=MAX_MESSAGE_BYTES)
            refused = None
        except MainspringError as error:
            body, refused = None, f"the message is not valid: {error.message}".replace("request body", "it")
        full = len(batch) >= source.batch or size + len(message.value) > MAX_BATCH_BYTES
        if batch and (full or refused is not None):
            yield Unit(batch, bodies)
            batch, bodies, size = [], [], 0
        if refused is not None:
            yield Unit([message], refused=refused)
        else:
            batch.append(message)
            bodies.append(body)
            size += len(message.value)
    if batch:
        yield Unit(batch, bodies)


async def _take_partition(
    database: Database, trigger: TriggerRow, source: TopicSource, messages: Sequence[Message]
) -> None:
    first = messages[0]
    async with database.connection() as connection:
        position = await trigger_topics.topic_position(
            connection,
            tenant=trigger.tenant,
            trigger_id=trigger.trigger_id,
            topic_key=first.topic_key,
            partition=first.partition,
        )
    fresh = [message for message in messages if position is None or message.offset >= position]
    if len(fresh) < len(messages):
        metrics.TRIGGER_DELIVERIES.labels("topic", "duplicate").inc(len(messages) - len(fresh))
    for unit in units(source, fresh):
        position = await _take_unit(database, trigger, unit, position)


async def _take_unit(database: Database, trigger: TriggerRow, unit: Unit, position: int | None) -> int:
    """Decide one unit and return the new position. An unexpected error refuses it: others must not wait for it."""
    arrival = unit.arrival
    if unit.refused is not None:
        decision = refusal("refused", unit.refused)
    else:
        decision = await decide(trigger.spec, arrival)
    try:
        return await _settle_unit(database, trigger, unit, arrival, decision, position)
    except AWAY:
        raise
    except (Held, Edited):
        raise
    except Exception:
        log.exception("trigger.not_decided", trigger=trigger.name, message=arrival.event)
        decision = refusal("refused", "an internal error, which the log of the scheduler describes")
        return await _settle_unit(database, trigger, unit, arrival, decision, position)


async def _settle_unit(
    database: Database, trigger: TriggerRow, unit: Unit, arrival: Arrival, decision: Decision, position: int | None
) -> int:
    async with database.transaction() as connection:
        after = await _moved(connection, trigger, unit, position)
        recorded = await triggers.record_delivery(
            connection, tenant=trigger.tenant, trigger_id=trigger.trigger_id, key=arrival.key, event=arrival.event
        )
        assert recorded is not None, "the lock keeps the trigger"
        row, _ = recorded
        if row.outcome != "started":
            row = await settle(connection, trigger, row, decision)
        if row.outcome == "paused":
            raise Held(row.reason or "the job is paused")  # and nothing of this is kept
    metrics.TRIGGER_DELIVERIES.labels("topic", row.outcome).inc()
    return after


async def _moved(connection: Connection, trigger: TriggerRow, unit: Unit, position: int | None) -> int:
    """Hold the trigger, and move its position behind the messages. Raises Edited."""
    first, after = unit.messages[0], unit.messages[-1].offset + 1
    held = await trigger_files.hold_trigger(
        connection, tenant=trigger.tenant, trigger_id=trigger.trigger_id, trigger_version=trigger.version
    )
    if not held or not await trigger_topics.move_position(
        connection,
        tenant=trigger.tenant,
        trigger_id=trigger.trigger_id,
        topic_key=first.topic_key,
        partition=first.partition,
        before=position,
        after=after,
    ):
        raise Edited
    return after
