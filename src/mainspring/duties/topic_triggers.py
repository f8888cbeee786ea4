"""Reads the topics of triggers. Every scheduler process reads; the broker spreads the partitions over them.

What was read is decided in the database, so a process that hangs or dies midway starts nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from mainspring import ports
from mainspring.domain.errors import Unavailable, clipped
from mainspring.domain.topic import Message, TopicRule, TopicSource
from mainspring.domain.watch import FIRST_TENANT
from mainspring.intake.triggers.topics import Edited, Held, take
from mainspring.service import Loops, Service
from mainspring.store import trigger_topics
from mainspring.store.db import Database
from mainspring.store.trigger_topics import TopicTrigger
from mainspring.store.triggers import TriggerRow

log = structlog.get_logger()

MAX_READERS = 500
"""Triggers of all tenants: each costs some threads and connections of a process."""
REREAD_S = 10.0
MEASURE_S = 2.0
HELD_S = 2.0
MAX_PROBLEM_CHARS = 500


@dataclass(slots=True)
class Reading:
    """A trigger whose topic this process reads. `held`: why its messages wait."""

    trigger: TriggerRow
    reader: ports.TopicReading
    held: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def source(self) -> TopicSource:
        source = self.trigger.spec.source
        assert isinstance(source, TopicSource)
        return source


class TopicTriggers(Service):
    """Keeps one reader for each active trigger of kind `topic` whose topic its tenant may read."""

    def __init__(self, database: Database, bus: ports.Bus, topics: ports.Topics, rules: tuple[TopicRule, ...]) -> None:
        self._database = database
        self._topics = topics
        self._rules = rules
        self._readings: dict[UUID, Reading] = {}
        self._edited = asyncio.Event()
        self._edited.set()
        self._loops = Loops("topic triggers")
        bus.subscribe(ports.TRIGGERS, self._on_trigger, on_gap=self._edited.set)

    async def start(self) -> None:
        self._loops.forever("reread", self._reread)
        self._loops.forever("measure", self._measure)

    async def stop(self) -> None:
        await self._loops.stop()
        await asyncio.gather(*(reading.reader.stop() for reading in self._readings.values()))

    def _on_trigger(self, payload: str) -> None:
        if payload == ports.EDIT:
            self._edited.set()

    async def _reread(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._edited.wait(), REREAD_S)
        self._edited.clear()
        async with self._database.connection() as connection:
            found = await trigger_topics.topic_triggers(connection, limit=MAX_READERS)
        wanted = {one.trigger.trigger_id: one for one in found}
        for trigger_id in self._readings.keys() - wanted.keys():
            await self._end(trigger_id)
        for trigger_id, one in wanted.items():
            await self._update(trigger_id, one)

    async def _update(self, trigger_id: UUID, one: TopicTrigger) -> None:
        source = one.trigger.spec.source
        assert isinstance(source, TopicSource)
        reading = self._readings.get(trigger_id)
        is_first = one.trigger.tenant == FIRST_TENANT
        if not any(rule.allows(source, tenant=one.tenant_name, is_first=is_first) for rule in self._rules):
            await self._end(trigger_id)
            hint = "an operator allows it with --trigger-topic"
            return await self._record(one.trigger, f"this tenant may not read {source.place}: {hint}")
        if reading is not None and reading.source == source:
            reading.trigger = one.trigger
            reading.changed.set()
            return None
        await self._end(trigger_id)
        try:
            reader = self._topics.open(
                source,
                group=str(trigger_id),
                since_ms=one.trigger.created_at.timestamp() * 1000 if source.start == "latest" else None,
                handle=lambda messages: self._handle(trigger_id, messages),
            )
        except Unavailable as error:
            return await self._record(one.trigger, error.message)
        self._readings[trigger_id] = Reading(one.trigger, reader)
        log.info("trigger.reading", trigger=one.trigger.name, tenant=one.trigger.tenant, topic=source.place)
        return None

    async def _end(self, trigger_id: UUID) -> None:
        if (reading := self._readings.pop(trigger_id, None)) is not None:
            reading.changed.set()
            await reading.reader.stop()

    async def _handle(self, trigger_id: UUID, messages: list[Message]) -> None:
        """Decide messages; while nothing may start, wait, and with it the partition."""
        while (reading := self._readings.get(trigger_id)) is not None:
            reading.changed.clear()
            try:
                await take(self._database, reading.trigger, messages)
                reading.held = None
                return
            except Edited:
                self._edited.set()
            except Held as held:
                if reading.held is None:
                    log.info("trigger.held", trigger=reading.trigger.name, reason=str(held))
                reading.held = str(held)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading.changed.wait(), HELD_S)
        raise Edited  # the reader ends

    async def _measure(self) -> None:
        for reading in list(self._readings.values()):
            lag, problem = None, reading.held and f"messages wait: {reading.held}"
            try:
                lag = await reading.reader.lag()
            except Unavailable as error:
                problem = error.message
            await self._record(reading.trigger, problem, lag)
        await asyncio.sleep(MEASURE_S)

    async def _record(self, trigger: TriggerRow, problem: str | None, lag: int | None = None) -> None:
        shown = None if problem is None else clipped(problem, MAX_PROBLEM_CHARS)
        async with self._database.connection() as connection:
            await trigger_topics.topic_read(
                connection, tenant=trigger.tenant, trigger_id=trigger.trigger_id, problem=shown, lag=lag
            )
