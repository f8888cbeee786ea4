"""Settling and rescue against a real database."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring.announce import Announcer
from mainspring.domain.errors import Conflict
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import executions
from mainspring.results.batch import Report
from mainspring.results.rescue import rescue_orphans
from mainspring.results.settle import Settler
from mainspring.store import fires, sessions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.telemetry import metrics
from mainspring.testing.clock import VirtualClock
from tests.support.settling import TENANT, SettlingBench, live_by_state
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(fresh: Database) -> SettlingBench:
    return SettlingBench(fresh)


async def test_success_at_the_first_try_leaves_no_attempt_row(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    assert await bench.end(execution, session, "succeeded", duration_ms=7, result={"rows": 3})
    found = await bench.look(execution)
    assert (found.state, found.attempt, found.duration_ms, found.result) == ("succeeded", 1, 7, {"rows": 3})
    assert found.attempts == []


@pytest.mark.requirement(115)
async def test_a_failing_job_walks_its_delays_and_ends_as_failed(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started()
    for attempt, delay in ((1, 10), (2, 20)):
        assert await bench.end(execution, session, "failed", attempt=attempt, exit_code=3, error="exit code 3")
        found = await bench.look(execution)
        assert found.state == "waiting"
        assert (found.due_at - virtual.now).total_seconds() == delay
        await virtual.set(found.due_at)
        async with bench.database.connection() as connection:
            assert await fires.promote_waiting(connection, shards=list(range(64)), limit=10) == 1
        session = await bench.session()
        assert len(await bench.claim(session)) == 1
    assert await bench.end(execution, session, "failed", attempt=3, exit_code=3, error="exit code 3")
    found = await bench.look(execution)
    assert (found.state, found.exit_code, found.error) == ("failed", 3, "exit code 3")
    assert [(a.attempt, a.outcome) for a in found.attempts] == [(1, "failed"), (2, "failed"), (3, "failed")]


@pytest.mark.requirement(117)
async def test_timeouts_are_retried_too(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=1, base="10s", jitter="none"))
    assert await bench.end(execution, session, "timed_out")
    assert (await bench.look(execution)).state == "waiting"


@pytest.mark.requirement(114)
async def test_by_default_a_failing_job_is_tried_four_times(bench: SettlingBench, virtual: VirtualClock) -> None:
    """Three retries within a minute, two and four; none waits longer than an hour (full jitter may shorten each)."""
    execution, session = await bench.started(retries=RetryPolicy())
    for attempt, most in ((1, 60), (2, 120), (3, 240)):
        assert await bench.end(execution, session, "failed", attempt=attempt)
        found = await bench.look(execution)
        assert found.state == "waiting" and 0 <= (found.due_at - virtual.now).total_seconds() <= most <= 3600
        await virtual.set(max(found.due_at, virtual.now))
        async with bench.database.connection() as connection:
            await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
        session = await bench.session()
        assert len(await bench.claim(session)) == 1
    assert await bench.end(execution, session, "failed", attempt=4)
    assert (await bench.look(execution)).state == "failed"


@pytest.mark.parametrize(
    ("policy", "ending"),
    [
        ({"never_exit_codes": (2,)}, {"exit_code": 2, "error": "exit code 2"}),
        ({"only_errors": ("TimeoutError",)}, {"error": "ValueError: no"}),
        ({"on": ("timed_out", "lost")}, {"error": "no"}),
        ({}, {"error": "no", "retry": False}),
    ],
)
async def test_what_the_policy_leaves_out_is_final_at_once(
    bench: SettlingBench, policy: dict[str, Any], ending: dict[str, Any]
) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=5, **policy))
    assert await bench.end(execution, session, "failed", **ending)
    found = await bench.look(execution)
    assert (found.state, found.attempt) == ("failed", 1)


async def test_a_job_may_leave_out_lost_workers(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=5, on=("failed",)))
    await bench.end_session(session)
    found = await bench.look(execution)
    assert found.state == "lost" and found.reason is not None and "retries.on" in found.reason


async def test_stale_results_are_counted(bench: SettlingBench) -> None:
    def counted() -> float:
        return float(metrics.STALE_RESULTS._value.get())

    execution, session = await bench.started()
    before = counted()
    assert await bench.end(execution, session, "succeeded")
    assert counted() == before
    assert not await bench.end(execution, session, "succeeded")
    assert not await bench.end(uuid4(), session, "failed")
    assert counted() == before + 2


class Releases(Settler):
    """Notes how many executions were still running at each release."""

    noted: list[tuple[int, int]]

    async def release(self, job_ids: Any) -> None:
        async with self._database.connection() as connection:
            live = await live_by_state(connection)
        self.noted.append((live.get("running", 0), len(set(job_ids))))
        await super().release(job_ids)


async def test_while_results_pile_up_outcomes_come_first_and_releases_follow(bench: SettlingBench) -> None:
    """Five batches of two at a time; each job has one running and one blocked execution. Only who ends after the
    last batch was taken releases anything, and then what all of them owe."""
    for _ in range(320):
        await bench.job(overlap="queue_one", schedule=ScheduleSpec(every=3600))
    session = await bench.session()
    insert = (
        "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, priority, chained, attempt, state,"
        " trigger, queue, rank, fire_at, due_at, queued_at, started_at, session_id, line_id)"
        " SELECT gen_random_uuid(), job_id, 1, 1, shard, 5, true, $3, $1, 'fire', queue, 1, db_now(), db_now(),"
        " db_now(), db_now(), $2, line_id FROM jobs"
    )
    async with bench.database.connection() as connection:
        await connection.execute(insert, "running", session, 1)
        await connection.execute(insert, "blocked", None, 0)
        running = await connection.fetch("SELECT execution_id FROM executions WHERE state = 'running'")
    settler = Releases(bench.database, Definitions(bench.database), Announcer(SilentBus()), backlog_limit=5)
    settler.noted = []
    reports = [Report(session, [AttemptResult(r["execution_id"], 1, session, "succeeded")]) for r in running]
    assert await asyncio.gather(*(settler.settle(report) for report in reports)) == [set()] * 320
    assert await bench.live() == {"queued": 320}, "nothing is left blocked"
    assert sum(jobs for _, jobs in settler.noted) == 320 and len(settler.noted) <= 2
    assert settler.noted[0][0] <= 128, "no release before the pile was gone"


@pytest.mark.parametrize("guard", ["another session", "an old attempt", "already settled", "not started"])
async def test_a_stale_result_changes_nothing(bench: SettlingBench, guard: str) -> None:
    execution, session = await bench.started()
    match guard:
        case "another session":
            other = await bench.session()
            assert not await bench.end(execution, other, "failed")
        case "an old attempt":
            assert await bench.end(execution, session, "preempted")
            await bench.claim(session)
            assert not await bench.end(execution, session, "succeeded", attempt=1)
        case "already settled":
            assert await bench.end(execution, session, "succeeded")
            assert not await bench.end(execution, session, "failed")
            assert (await bench.look(execution)).state == "succeeded"
            return
        case "not started":
            assert await bench.end(execution, session, "preempted")
            assert not await bench.end(execution, session, "succeeded", attempt=1)
            assert (await bench.look(execution)).state == "queued"
            return
    assert (await bench.look(execution)).state == "running"


@pytest.mark.requirement(39)
async def test_a_lost_session_gives_its_executions_back(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    await bench.end_session(session)
    found = await bench.look(execution)
    assert (found.state, [a.outcome for a in found.attempts]) == ("queued", ["lost"])
    assert not await bench.end(execution, session, "succeeded"), "the old session's result is stale now"


@pytest.mark.parametrize("outcome", ["lost", "failed", "timed_out", "succeeded"])
@pytest.mark.parametrize("retries", [0, 2])
async def test_two_that_tell_of_the_same_end_at_once_are_both_heard(
    bench: SettlingBench, outcome: str, retries: int
) -> None:
    """A guardian's goodbye and the rescue may find the same execution, and be settled in one batch."""
    execution, session = await bench.started(retries=RetryPolicy(max=retries, base="10s", jitter="none"))
    await bench.started()
    told = [bench.end(execution, session, outcome) for _ in range(2)]
    assert await asyncio.gather(*told) == [True, True]
    async with bench.database.connection() as connection:
        rows = await connection.fetchval("SELECT count(*) FROM attempts WHERE execution_id = $1", execution)
    assert rows == (outcome != "succeeded")
    assert sum((await bench.live()).values()) == (2 if outcome != "succeeded" and retries else 1)


async def test_at_most_once_is_never_started_twice(bench: SettlingBench) -> None:
    execution, session = await bench.started(delivery="at_most_once", retries=RetryPolicy(max=0))
    await bench.end_session(session)
    found = await bench.look(execution)
    assert found.state == "lost"
    assert found.reason is not None and "at_most_once" in found.reason
    assert await bench.claim(await bench.session()) == []


async def test_at_most_once_is_not_started_again_after_its_worker_drained(bench: SettlingBench) -> None:
    """A worker gives back what it can't finish; the task may have begun, so it must not begin again."""
    execution, session = await bench.started(delivery="at_most_once", retries=RetryPolicy(max=0))
    assert await bench.end(execution, session, "preempted")
    found = await bench.look(execution)
    assert found.state == "lost" and found.reason is not None and "at_most_once" in found.reason
    assert await bench.claim(await bench.session()) == []


async def test_nothing_is_promoted_before_it_is_due(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started()
    assert await bench.end(execution, session, "failed")
    due = (await bench.look(execution)).due_at
    for ahead_ms, promoted in ((1, 0), (0, 1)):
        await virtual.set(due - timedelta(milliseconds=ahead_ms))
        async with bench.database.connection() as connection:
            assert await fires.promote_waiting(connection, shards=list(range(64)), limit=10) == promoted


@pytest.mark.fault("F20")
async def test_three_lost_sessions_make_an_execution_poison(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=9))
    for _ in range(2):
        await bench.end_session(session)
        session = await bench.session()
        assert len(await bench.claim(session)) == 1
    await bench.end_session(session)
    found = await bench.look(execution)
    assert found.state == "failed"
    assert found.reason is not None and found.reason.startswith("poison")


@pytest.mark.requirement(90)
async def test_a_lost_session_without_retries_left_ends_as_lost(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=0))
    await bench.end_session(session)
    assert (await bench.look(execution)).state == "lost"


async def test_a_session_is_lost_by_database_time_only(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started()
    await virtual.advance(seconds=19)
    async with bench.database.connection() as connection:
        assert await sessions.expire_sessions(connection) == ([], 1.0)
        await virtual.advance(seconds=2)
        assert await sessions.expire_sessions(connection) == ([session], None)
        beat = sessions.Heartbeat(TENANT, session, [execution])
        renewed = await sessions.renew_sessions(connection, beats=[beat], lease_s=20)
    assert not renewed, "a lost session can't come back to life"
    await rescue_orphans(bench.database, bench.settler)
    assert (await bench.look(execution)).state == "queued"


async def test_a_late_result_that_nobody_replaced_is_kept(bench: SettlingBench, virtual: VirtualClock) -> None:
    """Settling needs the session and attempt to be current, not an unexpired lease."""
    execution, session = await bench.started()
    await virtual.advance(seconds=60)
    assert await bench.end(execution, session, "succeeded")
    assert (await bench.look(execution)).state == "succeeded"


@pytest.mark.requirement(70)
async def test_cancel_before_and_while_running(bench: SettlingBench) -> None:
    job = await bench.job()
    queued = await bench.submit(job)
    await executions.cancel(bench.database, queued, tenant=TENANT, by="test", reason="not needed")
    found = await bench.look(queued)
    assert (found.state, found.reason) == ("cancelled", "cancelled by test: not needed")

    running, session = await bench.started()
    await executions.cancel(bench.database, running, tenant=TENANT, by="test", reason="")
    assert (await bench.look(running)).cancelling
    async with bench.database.connection() as connection:
        assert await sessions.session_cancels(connection, tenant=TENANT, session_id=session) == [running]
    assert await bench.end(running, session, "failed", exit_code=-15)
    assert (await bench.look(running)).state == "cancelled", "no retry of what a person has cancelled"


@pytest.mark.requirement(42)
async def test_settle_cancel_and_rescue_at_once_end_each_execution_once(bench: SettlingBench) -> None:
    """Three parties race for the same rows; whoever is first decides, nobody deadlocks, nothing ends twice."""
    job = await bench.job(retries=RetryPolicy(max=0))
    ids = [await bench.submit(job) for _ in range(60)]
    session = await bench.session()
    rows = await bench.claim(session, slots=60)
    rng = random.Random(7)

    async def settle_some(part: list[Any]) -> None:
        for row in part:
            outcome = rng.choice(["succeeded", "failed", "timed_out"])
            await bench.end(row["execution_id"], session, outcome, attempt=row["attempt"])

    async def cancel_some() -> None:
        for execution in rng.sample(ids, 30):
            with contextlib.suppress(Conflict):  # it may have ended already
                await executions.cancel(bench.database, execution, tenant=TENANT, by="test", reason="")

    async def lose() -> None:
        await bench.end_session(session)

    await asyncio.gather(settle_some(rows[:40]), settle_some(rows[20:]), cancel_some(), lose())
    async with bench.database.connection() as connection:
        live = await connection.fetchval("SELECT count(*) FROM executions")
        final = await connection.fetchval("SELECT count(*) FROM history")
        twice = await connection.fetchval(
            "SELECT count(*) FROM (SELECT FROM history GROUP BY execution_id HAVING count(*) > 1) t"
        )
    assert (live, final, twice) == (0, 60, 0)


async def test_claimers_at_once_get_disjoint_batches_in_order(bench: SettlingBench) -> None:
    low = await bench.job(priority=1)
    high = await bench.job(priority=9)
    for _ in range(40):
        await bench.submit(low)
        await bench.submit(high)
    claimed = await asyncio.gather(*[bench.claim(await bench.session(), slots=10) for _ in range(6)])
    ids = [row["execution_id"] for batch in claimed for row in batch]
    assert len(ids) == len(set(ids)) == 60
    assert [row["job_id"] for batch in claimed for row in batch].count(high) == 40, "highest priority first"


@pytest.mark.requirement(34)
async def test_batches_of_a_thousand_are_disjoint_and_the_best_there_is(bench: SettlingBench) -> None:
    """Three claimers at once: together they have what comes first by priority, then by time, and none has another's."""
    low, high = await bench.job(priority=1), await bench.job(priority=9)
    for _ in range(2):
        for job in (low, high):
            await asyncio.gather(*[bench.submit(job) for _ in range(1000)])
    async with bench.database.connection() as connection:
        best = [
            row["execution_id"]
            for row in await connection.fetch(
                "SELECT execution_id FROM executions ORDER BY priority DESC, due_at, execution_id LIMIT 3000"
            )
        ]
    sessions_ = [await bench.session() for _ in range(3)]
    claimed = await asyncio.gather(*[bench.claim(session, slots=1000) for session in sessions_])
    assert [len(batch) for batch in claimed] == [1000] * 3
    ids = [row["execution_id"] for batch in claimed for row in batch]
    assert len(set(ids)) == 3000
    assert set(ids) == set(best)


async def test_an_ended_session_gets_nothing(bench: SettlingBench) -> None:
    await bench.submit(await bench.job())
    session = await bench.session()
    await bench.end_session(session)
    assert await bench.claim(session) == []


async def test_results_that_are_lists_stay_whole(bench: SettlingBench) -> None:
    job_id = await bench.job(retries=RetryPolicy(max=0))
    first, second = await bench.submit(job_id), await bench.submit(job_id)
    session = await bench.session()
    assert len(await bench.claim(session, 2)) == 2
    both = [
        AttemptResult(first, 1, session, "succeeded", result=[1, [2, 3]]),
        AttemptResult(second, 1, session, "failed", error="no", result=[]),
    ]
    assert not await bench.settler.settle(Report(session, both))
    assert (await bench.look(first)).result == [1, [2, 3]]
    assert (await bench.look(second)).result == []
