"""Several dispatchers on one database, like several api processes, with workers that record their executions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.dispatch.service import Dispatcher
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.service import Service
from mainspring.store import sessions
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions

TENANT = 1


@dataclass
class Fleet:
    """`started` lists (job name, execution) in the order in which workers received them."""

    database: Database
    settler: Settler
    submitter: Submitter
    dispatchers: list[Dispatcher]
    started: list[tuple[str, UUID]] = field(default_factory=list)

    async def job(self, name: str, *, tenant: int = TENANT, **spec: Any) -> UUID:
        return await jobs.create(self.database, JobSpec(name=name, task=NoopTask(), **spec), tenant=tenant, by="test")

    async def submit(
        self, job_id: UUID, count: int, params: dict[str, Any] | None = None, *, tenant: int = TENANT
    ) -> list[UUID]:
        one = Submission(tenant, "test", job_id, None, params)
        return list(await asyncio.gather(*[self.submitter.submit(one) for _ in range(count)]))

    async def session(self, *, slots: int = 4, tenant: int = TENANT, **has: Any) -> UUID:
        session_id = uuid4()
        register = wire.Register(
            name=str(session_id),
            host="h",
            version="1",
            slots=slots,
            **{"kinds": ["noop"], "queues": ["short", "long"], **has},
        )
        async with self.database.connection() as connection:
            await sessions.insert_session(
                connection, tenant=tenant, session_id=session_id, worker_id=uuid4(), register=register, lease_s=600
            )
        return session_id

    async def work(
        self, dispatcher: Dispatcher, session: UUID, until: Callable[[], bool], *, slots: int = 4, tenant: int = TENANT
    ) -> None:
        """Act as a worker that reports success for every execution, until the condition holds."""
        while not until():
            poll = wire.Poll(session_id=session, free=slots, wait_s=0.2)
            polled = await dispatcher.poll(poll, tenant=tenant)
            self.started += [
                (polled.definitions[given.definition].name, given.execution_id) for given in polled.executions
            ]
            ended = [AttemptResult(g.execution_id, g.attempt, session, "succeeded", 1) for g in polled.executions]
            if ended:
                assert not await self.settler.settle(Report(session, ended))


@asynccontextmanager
async def fleet(database: Database, *, dispatchers: int) -> AsyncIterator[Fleet]:
    bus = PostgresBus(database)
    announcer, definitions = Announcer(bus), Definitions(database)
    found = Fleet(
        database,
        Settler(database, definitions, announcer),
        Submitter(database),
        [Dispatcher(database, bus, definitions, announcer) for _ in range(dispatchers)],
    )
    async with AsyncExitStack() as stack:
        services: list[Service] = [bus, *found.dispatchers]
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        await bus.ready()
        yield found
