"""What a job tells by its `notify`, each provoked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.alerts import channels
from mainspring.domain.errors import Conflict, Invalid
from mainspring.domain.job import Notify
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.duties.deadlines import skip_overdue
from mainspring.intake import executions as intake
from mainspring.intake import jobs
from mainspring.intake import runs as run_actions
from mainspring.testing.clock import VirtualClock
from tests.support.alerts import TENANT, AlertBench
from tests.support.http_receiver import receiving, reply
from tests.support.runs import RunBench

pytestmark = pytest.mark.anyio

NEVER = RetryPolicy(max=0)


@pytest.fixture
async def hook(bench: AlertBench) -> None:
    async with receiving(lambda _: reply()) as server:
        await bench.slack(server, name="ops")


async def noticing(bench: AlertBench, *on: Any, **spec: Any) -> UUID:
    more = {name: spec.pop(name) for name in ("by", "factor") if name in spec}
    return await bench.job(notify=(Notify(on, ("ops",), **more),), **{"retries": NEVER, **spec})


async def told(bench: AlertBench) -> list[str]:
    return [d.event for d in await bench.deliveries()]


async def test_failures_and_the_first_success_after_them(bench: AlertBench, hook: None) -> None:
    job = await noticing(bench, "failed", "recovered")
    await bench.ended("succeeded", job)
    assert await told(bench) == []
    await bench.ended("failed", job)
    await bench.ended("timed_out", job)
    assert await told(bench) == ["job.failed", "job.failed"]
    await bench.ended("succeeded", job)
    await bench.ended("succeeded", job)
    assert await told(bench) == ["job.failed", "job.failed", "job.recovered"]
    await bench.ended("failed")  # another job, which tells nobody
    assert len(await told(bench)) == 3


@pytest.mark.requirement(118)
async def test_the_last_failure_leaves_a_dead_letter_and_its_notice_in_one_transaction(
    bench: AlertBench, hook: None
) -> None:
    job = await noticing(bench, "failed")
    execution = await bench.ended("failed", job, exit_code=3, error="exit code 3")
    async with bench.database.connection() as connection:
        letter = await connection.fetchrow(
            "SELECT d.*, d.xmin = o.xmin AS together, v.spec FROM dead_letters d"
            " JOIN job_versions v USING (job_id, version) CROSS JOIN outbox o WHERE dead_letter_id = $1",
            execution,
        )
    assert letter is not None and letter["together"]
    assert (letter["ended_as"], letter["exit_code"], letter["error"]) == ("failed", 3, "exit code 3")
    assert letter["spec"]["task"] == {"kind": "noop"} and len(letter["attempts"]) == 1
    (notice,) = await bench.deliveries()
    assert (notice.event, notice.data["execution_id"]) == ("job.failed", str(execution))


async def test_a_retry_is_no_failure(bench: AlertBench, hook: None) -> None:
    job = await noticing(bench, "failed", retries=RetryPolicy(max=1, base="10s", jitter="none"))
    await bench.ended("failed", job)
    assert await told(bench) == []


async def test_a_success_that_took_much_longer_than_usual(bench: AlertBench, hook: None) -> None:
    job = await noticing(bench, "slow", factor=2.0)
    for n in range(10):
        await bench.ended("succeeded", job, duration_ms=100 + n)
    await bench.ended("succeeded", job, duration_ms=190)
    assert await told(bench) == []
    await bench.ended("succeeded", job, duration_ms=500)
    (slow,) = await bench.deliveries()
    assert slow.event == "job.slow" and slow.data["duration_ms"] == 500 and 100 < slow.data["usual_ms"] < 200


async def test_what_has_not_started_in_time_is_late_once(bench: AlertBench, hook: None, virtual: VirtualClock) -> None:
    job = await noticing(bench, "late", by="30s")
    execution = await bench.submit(job)
    await virtual.advance(seconds=29)
    await bench.evaluator.evaluate()
    assert await told(bench) == []
    await virtual.advance(seconds=2)
    await bench.evaluator.evaluate()
    await bench.evaluator.evaluate()
    (late,) = await bench.deliveries()
    assert late.event == "job.late" and late.data["execution_id"] == str(execution)


async def test_a_fire_that_was_not_started_by_its_time_is_missed(
    bench: AlertBench, hook: None, virtual: VirtualClock
) -> None:
    job = await noticing(bench, "missed", start_by="10s")
    execution = await bench.submit(job)
    await virtual.advance(seconds=11)
    assert await skip_overdue(bench.database) == 1
    await bench.evaluator.evaluate()
    await bench.evaluator.evaluate()
    (missed,) = await bench.deliveries()
    assert (missed.event, missed.data["execution_id"]) == ("job.missed", str(execution))
    assert missed.data["reason"] == "start_by"


async def test_a_missed_deadline_is_told_to_those_who_want_to_know_of_lateness(
    bench: AlertBench, hook: None, virtual: VirtualClock
) -> None:
    await noticing(bench, "late", max_gap="1h", schedule=ScheduleSpec(every=60))
    await virtual.advance(hours=2)
    await bench.evaluator.evaluate()
    (late,) = await bench.deliveries()
    assert (late.event, late.data["rule"]) == ("alert.firing", "max_gap_missed")


async def test_silences_hold_notices_of_jobs_back_until_their_end(bench: AlertBench, virtual: VirtualClock) -> None:
    async with receiving(lambda _: reply()) as server:
        await bench.slack(server, name="ops")
        job = await noticing(bench, "failed")
        name = (await bench.look(await bench.ended("succeeded", job))).job
        held = await bench.silence({"job": name}, end_at=virtual.now.replace(hour=13), reason="upgrade")
        await bench.ended("failed", job)
        await bench.deliver()
        (waits,) = await bench.deliveries()
        assert (waits.state, waits.tries, waits.next_at) == ("pending", 0, held.end_at)
        assert server.got == []
        await virtual.advance(hours=1)
        assert await bench.deliver() == 1
        assert len(server.got) == 1


async def test_a_channel_that_jobs_name_must_exist_and_stays(bench: AlertBench, hook: None) -> None:
    with pytest.raises(Invalid) as refused:
        await bench.job(notify=(Notify(("failed",), ("ops", "opps")),))
    (problem,) = refused.value.problems
    assert (problem.pointer, problem.message) == ("/notify/0/to/1", "there is no channel 'opps'")
    job = await noticing(bench, "failed")
    with pytest.raises(Conflict, match="channel 'ops' is used by jobs"):
        await channels.delete(bench.database, "ops", tenant=TENANT, by="test")
    await jobs.patch(bench.database, job, {"notify": []}, tenant=TENANT, by="test")
    await bench.ended("failed", job)
    assert await told(bench) == []
    other = await noticing(bench, "failed")
    await jobs.delete(bench.database, other, tenant=TENANT, by="test")
    await channels.delete(bench.database, "ops", tenant=TENANT, by="test")


async def test_retries_and_cancellations_are_told_to_who_subscribed(bench: AlertBench) -> None:
    async with receiving(lambda _: reply()) as server:
        await bench.webhook(server, "execution.retrying", "execution.cancelled")
        job = await bench.job(retries=RetryPolicy(max=1, base="10s", jitter="none"))
        await bench.ended("failed", job, error="oops")
        execution = await bench.submit(job)
        await intake.cancel(bench.database, execution, tenant=TENANT, by="someone", reason="")
    retrying, cancelled = await bench.deliveries()
    assert (retrying.event, retrying.data["outcome"], retrying.data["error"]) == (
        "execution.retrying",
        "failed",
        "oops",
    )
    assert (cancelled.event, cancelled.data["execution_id"]) == ("execution.cancelled", str(execution))


async def test_a_channel_may_want_only_some_jobs(bench: AlertBench) -> None:
    from mainspring.domain.channel import SlackTarget
    from mainspring.domain.job import JobSpec, NoopTask

    async def made(name: str) -> UUID:
        spec = JobSpec(name=name, task=NoopTask(), retries=NEVER)
        return await jobs.create(bench.database, spec, tenant=TENANT, by="test")

    await bench.channel("some", SlackTarget("https://example.com/x"), ["execution.failed"], ["etl-*", "report"])
    for name in ("etl-a", "etl", "report", "report-b"):
        await bench.ended("failed", await made(name))
    assert [d.data["job"] for d in await bench.deliveries()] == ["etl-a", "report"]


async def test_runs_that_people_and_time_end_are_told_as_any_other(bench: AlertBench, virtual: VirtualClock) -> None:
    async with receiving(lambda _: reply()) as server:
        await bench.slack(server, "execution.succeeded", "execution.cancelled", "execution.timed_out")
    flows = RunBench(bench.database)
    steps: dict[str, Any] = {"sign": {"approval": {"self_approval": True}}}
    approved, cancelled = await flows.begin("flow", steps, timeout="1h"), await flows.start("flow")
    await flows.start("flow")
    await run_actions.decide(
        flows.runs, approved.run_id, "sign", wire.Decision(), tenant=TENANT, by="test", scopes=["write"], approved=True
    )
    await run_actions.cancel(flows.runs, cancelled.run_id, tenant=TENANT, by="test")
    assert await told(bench) == ["execution.succeeded", "execution.cancelled"]
    await virtual.advance(hours=1)
    await flows.timers.run_due()
    assert await told(bench) == ["execution.succeeded", "execution.cancelled", "execution.timed_out"]


async def test_a_workflow_notifies_of_its_runs(bench: AlertBench, hook: None, virtual: VirtualClock) -> None:
    flows = RunBench(bench.database)
    steps: dict[str, Any] = {"sign": {"approval": {}}}
    await flows.begin("flow", steps, timeout="1h", notify=[{"on": ["failed"], "to": ["ops"]}], metadata={"owner": "me"})
    await bench.subscriptions.read()
    await virtual.advance(hours=1)
    await flows.timers.run_due()
    (sent,) = await bench.deliveries()
    assert (sent.event, sent.data["job"], sent.data["state"]) == ("job.failed", "flow", "timed_out")
    with pytest.raises(Invalid) as error:
        await flows.apply("other", steps, notify=[{"on": ["failed"], "to": ["unknown"]}])
    assert (error.value.code, error.value.problems[0].pointer) == ("unknown_channel", "/notify/0/to/0")
