"""The table of transitions against what the statements do, and against what the database refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.execution import LIVE, TRANSITIONS, can_change, new_id_suffixes
from mainspring.domain.retry import RetryPolicy
from mainspring.duties.deadlines import skip_overdue
from mainspring.intake import dependencies, executions
from mainspring.intake import runs as run_actions
from mainspring.store import executions as store_executions
from mainspring.store import fires, jobs
from mainspring.store.db import Database, IllegalTransition
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from tests.support.runs import RunBench
from tests.support.scheduling import add, scheduler_on, step
from tests.support.settling import TENANT, SettlingBench
from tests.support.transitions import record_transitions, recorded_transitions

pytestmark = pytest.mark.anyio

NEVER_SEEN: frozenset[tuple[str | None, str]] = frozenset()
"""Rows of the table that no flow below performs, each with its reason. There are none."""


class Flows:
    """Everything that changes the state of an execution, one flow after another in one database."""

    def __init__(self, database: Database, clock: VirtualClock) -> None:
        self._database = database
        self._clock = clock
        self._bench = SettlingBench(database)

    async def later(self, **spec: Any) -> UUID:
        at = self._clock.now + timedelta(minutes=10)
        job_id = await self._bench.job(**spec)
        return await self._bench.submitter.submit(executions.Submission(TENANT, "test", job_id, at=at))

    async def cancel(self, execution: UUID) -> None:
        await executions.cancel(self._database, execution, tenant=TENANT, by="test", reason="")

    async def outcomes(self) -> None:
        """Each outcome as the end of an attempt, with and without a retry."""
        once = RetryPolicy(max=0)
        for outcome in ("succeeded", "failed", "timed_out", "cancelled", "lost"):
            execution, session = await self._bench.started(retries=once)
            assert await self._bench.end(execution, session, outcome)
        for outcome in ("preempted", "failed", "lost"):
            execution, session = await self._bench.started()
            assert await self._bench.end(execution, session, outcome)
            await self.cancel(execution)  # queued or waiting again

    async def sessions_that_end(self) -> None:
        for spec in ({}, {"delivery": "at_most_once", "retries": RetryPolicy(max=0)}):
            execution, session = await self._bench.started(**spec)
            await self._bench.end_session(session)
            if (await self._bench.look(execution)).state in LIVE:
                await self.cancel(execution)

    async def direct_handoff(self) -> None:
        session, job_id = await self._bench.session(), await self._bench.job()
        async with self._database.connection() as connection:
            row = await jobs.job_by_id(connection, tenant=TENANT, job_id=job_id)
            assert row is not None
            line_id = await connection.fetchval("SELECT line_id FROM jobs WHERE job_id = $1", job_id)
            (handed,) = await store_executions.submit(
                connection,
                store_executions.SubmissionColumns(
                    suffixes=new_id_suffixes(1),
                    tenants=[TENANT],
                    job_ids=[job_id],
                    versions=[None],
                    created_by=["test"],
                    at_ms=[None],
                    fire_at=[None],
                    params=[None],
                    lines=[None],
                    sessions=[session],
                    session_lines=[line_id],
                ),
            )
        assert handed["state"] == "running"
        assert await self._bench.end(handed["execution_id"], session, "succeeded")

    async def deadlines(self) -> None:
        """What has not started in time is skipped, from each state before the start."""
        await self.later(start_by="1m")
        await self._bench.submit(await self._bench.job(start_by="1m"))
        await self._clock.advance(minutes=20)
        assert await skip_overdue(self._database) == 2

    async def due_times(self) -> None:
        execution = await self.later()
        await self._clock.advance(minutes=11)
        async with self._database.connection() as connection:
            await fires.promote_waiting(connection, shards=range(64), limit=10)
        await self.cancel(execution)
        await self.cancel(await self.later())

    async def _fires(self, minutes: int) -> None:
        scheduler = await scheduler_on(self._database)
        for _ in range(minutes):
            await self._clock.advance(seconds=60)
            await step(scheduler)

    async def _of(self, job: str, *states: str) -> list[UUID]:
        page = await execution_views.list_executions(self._database, tenant=TENANT, job=job, limit=100)
        return [e.execution_id for e in reversed(page.items) if e.state in states]

    async def overlaps(self) -> None:
        """Blocked executions: released, cancelled, replaced, skipped."""
        for policy in ("skip", "queue_all", "cancel_running"):
            await add(self._database, policy, overlap=policy)
        await add(self._database, "late", overlap="queue_all", start_by="90s")
        await self._fires(3)
        first, second, third = await self._of("queue_all", "queued", "blocked")
        await self.cancel(third)  # blocked
        await self.cancel(first)  # queued; releases the second
        assert (await self._bench.look(second)).state == "queued"
        await skip_overdue(self._database)
        await self._clock.advance(minutes=5)
        await skip_overdue(self._database)

    async def needs(self) -> None:
        """Fires of a job that needs another wait for it, also after they were blocked."""
        for name in ("parent", "child"):
            await add(self._database, name, overlap="queue_all")
        await dependencies.add(self._database, "child", wire.NewDependency(job="parent"), tenant=TENANT, by="test")
        await self._fires(2)
        first, second = await self._of("child", "waiting", "blocked")
        await self.cancel(first)
        assert (await self._bench.look(second)).state == "waiting"

    async def runs(self) -> None:
        """Workflow runs: a chain, a failure, a delay, a run inside a run."""
        bench = RunBench(self._database)
        await bench.apply("inner", {"only": {}})
        steps: dict[str, Any] = {
            "a": {},
            "b": {"needs": ["a"]},
            "c": {"needs": ["b"], "repeat": {"until": "iteration >= 2", "max": 3, "delay": "1s"}},
            "d": {"needs": ["a"], "workflow": "inner"},
        }
        await bench.begin("outer", steps)
        await bench.begin("broken", {"a": {}, "b": {"needs": ["a"]}})
        await bench.work(lambda name: "failed" if name == "x" else "succeeded")
        cancelled = await bench.begin("cancelled", {"a": {}, "wait": {"approval": {}}})
        await run_actions.cancel(bench.runs, cancelled.run_id, tenant=TENANT, by="test")


@pytest.mark.requirement(60)
async def test_every_change_of_state_is_in_the_table_and_every_row_of_the_table_happens(
    fresh: Database, virtual: VirtualClock
) -> None:
    await record_transitions(fresh)
    flows = Flows(fresh, virtual)
    for flow in (
        flows.outcomes,
        flows.sessions_that_end,
        flows.direct_handoff,
        flows.deadlines,
        flows.due_times,
        flows.runs,
        flows.overlaps,
        flows.needs,
    ):
        await flow()
    seen = set(await recorded_transitions(fresh))
    legal = {(t.before, t.after) for t in TRANSITIONS}
    assert seen - legal == set(), "the statements do what the table does not have"
    assert legal - seen == NEVER_SEEN, "the table has what no statement does"


async def test_the_database_refuses_every_other_change_of_a_live_state(fresh: Database) -> None:
    bench = SettlingBench(fresh)
    execution = await bench.submit(await bench.job())
    session = await bench.session()
    change = (
        "UPDATE executions SET state = $2::text, session_id = CASE WHEN $2 = 'running' THEN $3::uuid END,"
        " attempt = 1, started_at = db_now(), queued_at = db_now() WHERE execution_id = $1"
    )
    async with fresh.connection() as connection:
        for before in sorted(LIVE):
            for after in sorted(LIVE):
                await connection.execute("ALTER TABLE executions DISABLE TRIGGER executions_transition")
                await connection.execute(change, execution, before, session)
                await connection.execute("ALTER TABLE executions ENABLE TRIGGER executions_transition")
                if before == after or can_change(before, after):
                    await connection.execute(change, execution, after, session)
                else:
                    with pytest.raises(IllegalTransition, match=f"cannot change from {before} to {after}"):
                        await connection.execute(change, execution, after, session)
