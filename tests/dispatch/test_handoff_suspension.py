"""Every statement of direct handoff checks the suspension of its tenant itself, whatever the dispatcher offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.settlement import AttemptResult
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.duties.workflow_timers import WorkflowTimers
from mainspring.intake import runs, workflows
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from tests.support.settling import TENANT, SettlingBench
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize(("suspended", "state"), [(False, "running"), (True, "queued")])


class Offer:
    """A dispatcher with outdated settings: it always offers the slots of one session."""

    def __init__(self, session: UUID) -> None:
        self.session = session
        self.sessions: list[UUID] = []
        self.assigned: list[Any] = []

    @contextmanager
    def reserve(self, line_id: int, count: int, *, tenant: int) -> Iterator[Offer]:
        self.sessions = [self.session] * count
        yield self

    async def assign(self, rows: Sequence[Any], connection: Any = None) -> None:
        self.assigned += [row["execution_id"] for row in rows if row is not None and row["state"] == "running"]


class Chain:
    """Runs of two steps, the first of which a session runs; the second is offered to the same session."""

    def __init__(self, bench: SettlingBench, session: UUID) -> None:
        self.bench, self.session, self.offer = bench, session, Offer(session)
        database = bench.database
        self._settler = Settler(database, Definitions(database), Announcer(SilentBus()), handoff=self.offer)

    async def begin(self) -> Any:
        await runs.start(
            runs.RunTransactions(self.bench.database), "chain", wire.RunRequest(), tenant=TENANT, by="test"
        )
        await WorkflowTimers(self.bench.database).run_due()
        (first,) = await self.bench.claim(self.session)
        return first

    async def end(self, given: Any) -> None:
        ended = AttemptResult(given["execution_id"], given["attempt"], self.session, "succeeded", 1)
        assert not await self._settler.settle(Report(self.session, [ended]))


@pytest.fixture
async def bench(fresh: Database) -> SettlingBench:
    return SettlingBench(fresh)


async def suspend(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("UPDATE tenants SET suspended_at = db_now() WHERE tenant_id = $1", TENANT)


async def live(database: Database) -> list[tuple[str, UUID | None]]:
    """The state and session of each live execution, without runs."""
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT state, session_id FROM executions WHERE execution_id NOT IN (SELECT run_id FROM runs)"
        )
    return [(row["state"], row["session_id"]) for row in rows]


@both
async def test_a_submission(bench: SettlingBench, suspended: bool, state: str) -> None:
    session = await bench.session()
    offer = Offer(session)
    submitter, job = Submitter(bench.database, handoff=offer), await bench.job()
    # The first submission teaches the submitter the line of the job.
    await submitter.submit(Submission(TENANT, "test", job))
    (row,) = await bench.claim(session)
    assert await bench.end(row["execution_id"], session, "succeeded", duration_ms=1)
    if suspended:
        await suspend(bench.database)
    await submitter.submit(Submission(TENANT, "test", job))
    assert offer.sessions == [session], "a slot was offered"
    assert await live(bench.database) == [(state, None if suspended else session)]
    assert len(offer.assigned) == (not suspended)


@both
@pytest.mark.parametrize("way", ["the settling statement", "the releasing statement"])
async def test_the_next_step(bench: SettlingBench, way: str, suspended: bool, state: str) -> None:
    """`settle_with_successor` releases a successor that the process knows, `release_steps` any other."""
    steps = {"a": {"task": {"kind": "noop"}}, "b": {"task": {"kind": "noop"}, "needs": ["a"]}}
    if way == "the settling statement":
        steps["c"] = {"task": {"kind": "noop"}, "needs": ["b"]}
    spec = msgspec.convert({"name": "chain", "steps": steps}, WorkflowSpec)
    await workflows.apply(bench.database, spec, tenant=TENANT, by="test")
    chain = Chain(bench, await bench.session())
    # The first run teaches the settler the lines of the steps.
    given = await chain.begin()
    for _ in range(len(steps) - 1):
        await chain.end(given)
        (given,) = await bench.claim(chain.session) or await live_steps(bench.database)
    await chain.end(given)
    given = await chain.begin()
    if way == "the settling statement":
        await chain.end(given)
        (given,) = await live_steps(bench.database)
    if suspended:
        await suspend(bench.database)
    chain.offer.sessions, chain.offer.assigned = [], []
    await chain.end(given)
    assert chain.offer.sessions == [chain.session], "a slot was offered"
    assert await live(bench.database) == [(state, None if suspended else chain.session)]
    assert len(chain.offer.assigned) == (not suspended)


async def live_steps(database: Database) -> list[Any]:
    async with database.connection() as connection:
        return list(
            await connection.fetch("SELECT execution_id, attempt FROM executions JOIN run_steps USING (execution_id)")
        )
