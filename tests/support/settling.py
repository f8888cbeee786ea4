"""A job's executions, driven by hand from queued to settled."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.batch import Report
from mainspring.results.rescue import rescue_orphans
from mainspring.results.settle import Settler
from mainspring.store import claims, sessions
from mainspring.store.db import Connection, Database
from mainspring.store.definitions import Definitions
from mainspring.views import executions as execution_views
from tests.support.silent_bus import SilentBus

TENANT = 1


class SettlingBench:
    """A job's executions, driven by hand from queued to the end."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.settler = Settler(database, Definitions(database), Announcer(SilentBus()), rng=random.Random(1))
        self.submitter = Submitter(database)

    async def job(self, **spec: Any) -> UUID:
        spec.setdefault("retries", RetryPolicy(max=2, base="10s", jitter="none"))
        return await jobs.create(
            self.database, JobSpec(name=f"job-{uuid4()}", task=NoopTask(), **spec), tenant=TENANT, by="test"
        )

    async def session(self, lease_s: float = 20.0) -> UUID:
        session_id = uuid4()
        async with self.database.connection() as connection:
            await sessions.insert_session(
                connection,
                tenant=TENANT,
                session_id=session_id,
                worker_id=uuid4(),
                lease_s=lease_s,
                register=wire.Register(name="w", host="h", version="1", slots=10, queues=["short"], kinds=["noop"]),
            )
        return session_id

    async def submit(self, job_id: UUID) -> UUID:
        return await self.submitter.submit(Submission(TENANT, "test", job_id))

    async def claim(self, session_id: UUID, slots: int = 1) -> list[Any]:
        """What a dispatcher would claim for this session, from whatever line has something."""
        async with self.database.connection() as connection:
            lines = [(line, claims.LINE_START, slots) for line in await claims.queued_lines(connection, limit=1000)]
            if len(lines) == 1:
                return await claims.claim(
                    connection,
                    tenant=TENANT,
                    line_id=lines[0][0],
                    after=claims.LINE_START,
                    sessions=[session_id],
                    slot_order=[1] * slots,
                )
            rows = sorted(row for found in (await claims.peek(connection, lines=lines)).values() for row in found)
            return await claims.start_matched(
                connection, matched=[(execution, session_id) for _, execution in rows[:slots]]
            )

    async def started(self, **spec: Any) -> tuple[UUID, UUID]:
        """A running execution and its session."""
        execution = await self.submit(await self.job(**spec))
        session = await self.session()
        (row,) = await self.claim(session)
        assert row["execution_id"] == execution
        return execution, session

    async def end(self, execution: UUID, session: UUID, outcome: Any, attempt: int = 1, **more: Any) -> bool:
        """Whether the result was accepted."""
        stale = await self.settler.settle(
            Report(session, [AttemptResult(execution, attempt, session, outcome, **more)])
        )
        return not stale

    async def end_session(self, session: UUID) -> None:
        async with self.database.connection() as connection:
            await sessions.end_session(connection, tenant=TENANT, session_id=session, lost=True)
        await rescue_orphans(self.database, self.settler)

    async def live(self) -> dict[str, int]:
        """How many live executions there are, by state."""
        async with self.database.connection() as connection:
            return await live_by_state(connection)

    async def look(self, execution: UUID) -> wire.Execution:
        return await execution_views.get(self.database, execution, tenant=TENANT)


async def live_by_state(connection: Connection) -> dict[str, int]:
    """How many live executions of the tenant there are, by state."""
    rows = await connection.fetch(
        "SELECT state, count(*) AS n FROM executions WHERE tenant_id = $1 GROUP BY state", TENANT
    )
    return {r["state"]: r["n"] for r in rows}
