"""What is submitted while a worker waits at the same process is handed over without standing in the queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import wire
from mainspring.announce import Announcer
from mainspring.domain.settlement import AttemptResult
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.duties.workflow_timers import WorkflowTimers
from mainspring.intake import queues, workflows
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission, Submitter
from mainspring.results.batch import Report
from mainspring.results.settle import Settler
from mainspring.store import doctor
from mainspring.store.bus import PostgresBus
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from tests.support.dispatchers import TENANT, Fleet, fleet

pytestmark = pytest.mark.anyio


class Waiter:
    """A worker that has asked and is waiting."""

    def __init__(self, found: Fleet, session: UUID, *, free: int = 4, wait_s: float = 20) -> None:
        self.session = session
        poll = wire.Poll(session_id=session, free=free, wait_s=wait_s)
        self.answer = asyncio.create_task(found.dispatchers[0].poll(poll, tenant=TENANT))

    async def given(self) -> list[UUID]:
        return [given.execution_id for given in (await self.answer).executions]


async def at_the_counter(found: Fleet, **spec: Any) -> tuple[Submitter, UUID]:
    """A job that the dispatcher has served before, and a submitter that knows where workers wait."""
    job = await found.job("job", **spec)
    submitter = Submitter(found.database, handoff=found.dispatchers[0].handoff)
    await submitter.submit(Submission(TENANT, "test", job))
    await found.work(found.dispatchers[0], await found.session(), lambda: bool(found.started))
    await idle(found)
    return submitter, job


async def idle(found: Fleet) -> None:
    """Until the dispatcher has seen that nothing is queued."""
    dispatcher = found.dispatchers[0]
    while (
        dispatcher._known.fresh
        or any(w.in_claim for w in dispatcher._waiting.by_session.values())
        or dispatcher._settings.stale
    ):
        await asyncio.wait_for(
            dispatcher.poll(wire.Poll(session_id=await found.session(), free=1, wait_s=0.05), tenant=1), 5
        )


async def waiting(found: Fleet, session: UUID, **how: float) -> Waiter:
    waiter = Waiter(found, session, **how)  # type: ignore[arg-type]
    while session not in found.dispatchers[0]._waiting.by_session:
        await asyncio.sleep(0)
    return waiter


async def state_of(database: Database, execution: UUID) -> tuple[str, UUID | None]:
    async with database.connection() as connection:
        row = await connection.fetchrow(
            "SELECT state, session_id, queued_at, started_at, attempt FROM executions WHERE execution_id = $1",
            execution,
        )
    assert row is not None
    if row["state"] == "running":
        assert row["queued_at"] == row["started_at"] and row["attempt"] == 1
    return row["state"], row["session_id"]


async def submitted(submitter: Submitter, job: UUID) -> UUID:
    return await submitter.submit(Submission(TENANT, "test", job))


async def test_it_is_running_when_the_submission_is_answered(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        worker = await waiting(found, await found.session())
        execution = await submitted(submitter, job)
        assert await state_of(fresh, execution) == ("running", worker.session)
        assert await worker.given() == [execution]
        # Nobody waits any more: the next one is queued, and found by whoever asks.
        behind = await submitted(submitter, job)
        assert await state_of(fresh, behind) == ("queued", None)
        assert await Waiter(found, await found.session()).given() == [behind]
        async with fresh.connection() as connection:
            checks = (await doctor.examine(connection)).checks
            assert {checks[name] for name in checks if name.startswith(("I6 ", "I9 ", "I15 ", "I16 "))} == {"ok"}


async def test_a_session_that_has_ended_gets_nothing(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        worker = await waiting(found, await found.session(), wait_s=0.5)
        async with fresh.connection() as connection:
            await connection.execute(
                "UPDATE sessions SET lease_expires_at = now() WHERE session_id = $1", worker.session
            )
        execution = await submitted(submitter, job)
        assert await state_of(fresh, execution) == ("queued", None)
        assert await worker.given() == []


async def test_a_job_that_moved_to_another_queue_is_queued_there(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        other = await found.job("other", queue="long")
        worker = await waiting(found, await found.session(queues=["short"]), wait_s=0.5)
        async with fresh.connection() as connection:
            line_id = await connection.fetchval("SELECT line_id FROM jobs WHERE job_id = $1", other)
            await connection.execute("UPDATE jobs SET queue = 'long', line_id = $2 WHERE job_id = $1", job, line_id)
        assert await state_of(fresh, await submitted(submitter, job)) == ("queued", None)
        assert await worker.given() == []


@pytest.mark.parametrize("has", [{"queues": ["long"]}, {"kinds": ["shell"]}, {"draining": True}])
async def test_only_a_worker_that_may_run_it(fresh: Database, has: dict[str, Any]) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        draining = has.pop("draining", False)
        worker = await waiting(found, await found.session(**has), wait_s=0.3)
        if draining:
            async with fresh.connection() as connection:
                await connection.execute("UPDATE sessions SET state = 'draining' WHERE session_id = $1", worker.session)
        assert await state_of(fresh, await submitted(submitter, job)) == ("queued", None)
        assert await worker.given() == []


async def test_a_paused_queue_hands_nothing_over(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        worker = await waiting(found, await found.session(), wait_s=0.5)
        await queues.change(fresh, "short", {"paused": True}, tenant=TENANT, by="test")
        line = next(iter(found.dispatchers[0]._known._lines.values()))
        while not found.dispatchers[0]._settings.of(line).paused:
            await asyncio.sleep(0)
        assert await state_of(fresh, await submitted(submitter, job)) == ("queued", None)
        assert await worker.given() == []


async def test_a_deleted_job_is_not_found(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        worker = await waiting(found, await found.session(), wait_s=0.3)
        async with fresh.connection() as connection:
            await connection.execute("UPDATE jobs SET deleted_at = now() WHERE job_id = $1", job)
        with pytest.raises(Exception, match="there is no job"):
            await submitted(submitter, job)
        assert await worker.given() == []


async def test_every_one_of_many_starts_once(fresh: Database) -> None:
    """Submitters and workers at full tilt: some by direct handoff, some through the queue, none lost, none twice."""
    async with fleet(fresh, dispatchers=2) as found:
        submitter, job = await at_the_counter(found)
        found.started.clear()
        sessions = [await found.session() for _ in range(6)]
        total = 300

        async def feed() -> list[UUID]:
            return [await submitted(submitter, job) for _ in range(total // 3)]

        workers = [
            found.work(found.dispatchers[n % 2], session, lambda: len(found.started) >= total)
            for n, session in enumerate(sessions)
        ]
        fed = asyncio.gather(feed(), feed(), feed())
        await asyncio.wait_for(asyncio.gather(fed, *workers), 60)
        assert Counter(execution for _, execution in found.started) == Counter(e for part in fed.result() for e in part)


async def chain_of_two(found: Fleet) -> tuple[UUID, wire.Polled]:
    """A run whose first step a worker has been given, and who waits for more."""
    session = await found.session()
    worker = Waiter(found, session)
    await run_actions.start(
        run_actions.RunTransactions(found.database), "chain", wire.RunRequest(), tenant=TENANT, by="test"
    )
    await WorkflowTimers(found.database).run_due()
    return session, await worker.answer


async def end_first(settler: Settler, session: UUID, polled: wire.Polled) -> None:
    (given,) = polled.executions
    ended = AttemptResult(given.execution_id, given.attempt, session, "succeeded", 1)
    assert not await settler.settle(Report(session, [ended]))


async def test_the_next_step_of_a_run_goes_to_the_worker_that_waits(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        dispatcher = found.dispatchers[0]
        settler = Settler(fresh, Definitions(fresh), Announcer(PostgresBus(fresh)), handoff=dispatcher.handoff)
        steps = {"a": {"task": {"kind": "noop"}}, "b": {"task": {"kind": "noop"}, "needs": ["a"]}}
        chain = msgspec.convert({"name": "chain", "steps": steps}, WorkflowSpec)
        await workflows.apply(fresh, chain, tenant=TENANT, by="test")
        async with fresh.connection() as connection:
            line_id = await connection.fetchval("SELECT min(line_id) FROM workflow_steps")
        runs, handed_over = 0, 0
        # Never in the first run, which has yet to learn where its steps wait.
        while handed_over < 3 and runs < 50:
            runs += 1
            session, polled = await chain_of_two(found)
            worker = await waiting(found, session)
            async with asyncio.timeout(20):
                while any(
                    w.in_claim for w in dispatcher._waiting.by_session.values()
                ) or not dispatcher.handoff.find_slots(line_id, 1, tenant=TENANT):
                    await asyncio.sleep(0)
            await end_first(settler, session, polled)
            (second,) = (await worker.answer).executions
            async with fresh.connection() as connection:
                row = await connection.fetchrow(
                    "SELECT e.state, e.queued_at, e.started_at, s.state AS step, s.released_at FROM executions e "
                    "JOIN run_steps s USING (execution_id) WHERE execution_id = $1",
                    second.execution_id,
                )
            assert row is not None and (row["state"], row["step"]) == ("running", "running")
            handed_over += row["queued_at"] == row["started_at"] == row["released_at"]
            ended = AttemptResult(second.execution_id, second.attempt, session, "succeeded", 1)
            assert not await settler.settle(Report(session, [ended]))
            if (
                handed_over == 3
            ):  # never the first, where its steps wait is not known yet; nor while a claim is under way
                break
        assert handed_over == 3 and runs > 3
        async with fresh.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM runs WHERE state = 'succeeded'") == runs
            checks = (await doctor.examine(connection)).checks
            assert {checks[name] for name in checks if name.startswith(("I6 ", "I9 ", "I16 ", "I21 "))} == {"ok"}


async def test_a_step_for_a_worker_that_is_gone_is_queued(fresh: Database) -> None:
    async with fleet(fresh, dispatchers=1) as found:
        dispatcher = found.dispatchers[0]
        settler = Settler(fresh, Definitions(fresh), Announcer(PostgresBus(fresh)), handoff=dispatcher.handoff)
        steps = {"a": {"task": {"kind": "noop"}}, "b": {"task": {"kind": "noop"}, "needs": ["a"]}}
        chain = msgspec.convert({"name": "chain", "steps": steps}, WorkflowSpec)
        await workflows.apply(fresh, chain, tenant=TENANT, by="test")
        session, polled = await chain_of_two(found)
        await end_first(settler, session, polled)
        (second,) = (await Waiter(found, session).answer).executions
        await end_first(settler, session, wire.Polled([second], {}, []))
        session, polled = await chain_of_two(found)
        worker = await waiting(found, gone := await found.session(), wait_s=0.5)
        async with fresh.connection() as connection:
            await connection.execute("UPDATE sessions SET lease_expires_at = now() WHERE session_id = $1", gone)
        await end_first(settler, session, polled)
        assert await worker.given() == []
        assert len(await Waiter(found, await found.session()).given()) == 1


async def test_a_batch_starts_in_all_free_slots(fresh: Database) -> None:
    """Submissions that arrive together: as many as there are free slots start at once, and the others are queued."""
    async with fleet(fresh, dispatchers=1) as found:
        submitter, job = await at_the_counter(found)
        other = await found.job("other", queue="long")
        await submitter.submit(Submission(TENANT, "test", other))
        found.started.clear()
        await found.work(found.dispatchers[0], await found.session(), lambda: bool(found.started))
        await idle(found)
        short = await waiting(found, await found.session(queues=["short"]), free=3)
        long = await waiting(found, await found.session(queues=["long"]), free=2)
        made = await asyncio.gather(*[submitted(submitter, job if n < 5 else other) for n in range(8)])
        states = [await state_of(fresh, execution) for execution in made]
        assert Counter(states) == {("running", short.session): 3, ("running", long.session): 2, ("queued", None): 3}
        given = [await short.given(), await long.given()]
        running = [e for e, (state, _) in zip(made, states, strict=True) if state == "running"]
        assert sorted(given[0] + given[1]) == sorted(running)
        assert set(given[0]) <= set(made[:5]) and set(given[1]) <= set(made[5:])
