"""The testing kit, used as its users use it: through its fixture, in synchronous tests."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from mainspring.domain.errors import Invalid
from mainspring.testing import Cluster, StillBusy
from tests.testing import shop

START = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def empty_shop() -> None:
    shop.charged.clear()
    shop.reported.clear()


def states(cluster: Cluster, job: str) -> list[str]:
    return [each.state for each in cluster.executions(job)]


def test_a_submission_runs_in_this_process(mainspring_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    mainspring_cluster.load(shop)
    shop.say_hello.submit(name="world")
    mainspring_cluster.assert_enqueued("say_hello", count=1, params={"name": "world"})
    mainspring_cluster.run_until_idle()
    (done,) = mainspring_cluster.executions("say_hello")
    assert (done.state, done.result) == ("succeeded", "hello world")
    assert done.started_at == START, "no time has passed"

    seen: list[str] = []
    monkeypatch.setattr(shop, "charged", seen)
    shop.charge.submit(order="a")
    mainspring_cluster.run_until_idle()
    assert seen == ["a"], "the function that the test has patched was called"


def test_retries_move_the_clock_by_their_backoff(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    submitted = shop.charge.submit(order="a", fail_times=2)
    mainspring_cluster.run_until_idle()
    done = mainspring_cluster.client.execution(submitted.execution_id)
    assert (done.state, done.attempt, done.result) == ("succeeded", 3, "charged a")
    assert mainspring_cluster.now - START == timedelta(seconds=30), "10 s, then 20 s"
    assert shop.charged == ["a", "a", "a"]


def test_a_failure_has_its_traceback_and_leaves_a_dead_letter(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    shop.charge.submit(order="a", fail_times=9)
    mainspring_cluster.run_until_idle()
    assert states(mainspring_cluster, "charge") == ["failed"]
    (letter,) = mainspring_cluster.client.dead_letters().items
    assert "the bank does not answer" in str(letter)


@pytest.mark.mainspring(start="2027-03-19T12:00Z")
def test_schedules_fire_at_their_wall_time_over_a_change_of_the_clock(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.nightly)
    mainspring_cluster.travel_to("2027-03-29T12:00", tz="Europe/Berlin")
    fires = [each.fire_at for each in mainspring_cluster.executions("nightly")]
    assert len(fires) == 10, "one a night, also on the day without 02:30"
    shown = [at.isoformat() for at in fires[-3:]]
    assert shown == ["2027-03-27T01:30:00+00:00", "2027-03-28T01:00:00+00:00", "2027-03-29T00:30:00+00:00"]
    assert shop.reported[-1] == date(2027, 3, 29)
    assert set(states(mainspring_cluster, "nightly")) == {"succeeded"}


@pytest.mark.mainspring(start="2026-10-24T12:00Z")
def test_an_hour_that_comes_twice_fires_once(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.nightly)
    mainspring_cluster.travel(days=1)
    assert [each.fire_at.isoformat() for each in mainspring_cluster.executions("nightly")] == [
        "2026-10-25T00:30:00+00:00"
    ]


def test_a_jump_misses_what_was_due(mainspring_cluster: Cluster) -> None:
    spec: dict[str, Any] = {"task": {"kind": "noop"}, "schedule": {"every": "1h"}}
    mainspring_cluster.client.create_job({"name": "latest", **spec, "misfire": {"policy": "latest"}})
    mainspring_cluster.client.create_job({"name": "all", **spec, "misfire": {"policy": "all"}, "overlap": "queue_all"})
    mainspring_cluster.jump_to(START + timedelta(hours=5, minutes=1))
    mainspring_cluster.run_until_idle()
    assert states(mainspring_cluster, "latest").count("succeeded") == 1
    assert states(mainspring_cluster, "all") == ["succeeded"] * 5


def test_a_function_can_submit_jobs_and_delays_are_waited_for(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load("tests.testing.shop")
    shop.order.submit(number="7")
    mainspring_cluster.travel(seconds=1)
    mainspring_cluster.assert_enqueued("charge", at="2026-11-16T18:00Z", params={"order": "7"})
    assert shop.charged == []
    mainspring_cluster.run_until_idle()
    assert shop.charged == ["7"]
    assert mainspring_cluster.now == START.replace(hour=18)


def test_checkpoints_and_artifacts(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.resume)
    submitted = shop.resume.submit(stop_at=41)
    mainspring_cluster.run_until_idle()
    assert mainspring_cluster.client.execution(submitted.execution_id).result == [42, 2]
    assert (mainspring_cluster.artifacts(submitted.execution_id) / "rows.txt").read_text() == "1\n2\n"


def test_a_crash_after_the_function_repeats_it(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    submitted = shop.charge.submit(order="a")
    mainspring_cluster.workers[0].crash(after="charge")
    mainspring_cluster.run_until_idle()
    done = mainspring_cluster.client.execution(submitted.execution_id)
    assert (done.state, done.attempt) == ("succeeded", 2)
    assert shop.charged == ["a", "a"], "this is what at_least_once means"
    assert mainspring_cluster.now - START >= timedelta(seconds=20), "a silent worker is noticed when its lease ends"


def test_a_crash_before_the_function_does_not_call_it(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    shop.charge.submit(order="a")
    mainspring_cluster.workers[0].crash(before="charge")
    mainspring_cluster.run_until_idle()
    assert shop.charged == ["a"]
    assert states(mainspring_cluster, "charge") == ["succeeded"]


@pytest.mark.mainspring(workers=2)
def test_the_result_of_a_worker_that_was_cut_off_comes_too_late(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    submitted = shop.charge.submit(order="a")
    for worker in mainspring_cluster.workers:
        worker.cut_off(during="charge")
    mainspring_cluster.travel(seconds=1)
    (cut_off,) = [worker for worker in mainspring_cluster.workers if worker.executed]
    (other,) = [worker for worker in mainspring_cluster.workers if not worker.executed]
    other.reconnect()
    mainspring_cluster.run_until_idle()
    assert other.executed == ["charge"]
    cut_off.reconnect()
    mainspring_cluster.run_until_idle()
    assert cut_off.stale == [submitted.execution_id]
    assert mainspring_cluster.client.execution(submitted.execution_id).attempt == 2


def test_another_scheduler_takes_over(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.client.create_job({"name": "tick", "task": {"kind": "noop"}, "schedule": {"every": "1s"}})
    mainspring_cluster.travel(seconds=10)
    mainspring_cluster.crash_scheduler()
    mainspring_cluster.travel(seconds=20)
    fires = [each.fire_at for each in mainspring_cluster.executions("tick")]
    assert len(fires) == len(set(fires)) == 30, "each instant was decided once"


def test_programs_and_workflows_run_too(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.client.create_job({"name": "hello", "task": {"kind": "shell", "argv": ["echo", "hi"]}})
    submitted = mainspring_cluster.client.trigger("hello")
    steps = {
        "a": {"task": {"kind": "shell", "argv": ["true"]}},
        "b": {"task": {"kind": "shell", "argv": ["false"]}, "needs": ["a"], "retries": {"max": 0}},
    }
    mainspring_cluster.client.apply_workflow({"name": "flow", "steps": steps})
    run = mainspring_cluster.client.start_run("flow")
    mainspring_cluster.run_until_idle()
    assert mainspring_cluster.client.execution(submitted.execution_id).state == "succeeded"
    ended = mainspring_cluster.client.run(run.run_id)
    states = {step.name: step.state for step in ended.steps}
    assert (ended.state, states) == ("failed", {"a": "succeeded", "b": "failed"})


def test_what_can_never_run_is_named(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.client.create_job({"name": "far", "task": {"kind": "noop"}, "queue": "mars"})
    mainspring_cluster.client.trigger("far")
    with pytest.raises(StillBusy, match=r"far .* is queued: .*mars"):
        mainspring_cluster.run_until_idle()
    mainspring_cluster.add_worker("rover", queues=["mars"])
    mainspring_cluster.run_until_idle()
    assert states(mainspring_cluster, "far") == ["succeeded"]


def test_expectations_that_fail_say_what_there_is(mainspring_cluster: Cluster) -> None:
    mainspring_cluster.load(shop.charge)
    shop.charge.submit(order="a")
    with pytest.raises(AssertionError, match=r"params=\{'order': 'b'\}.*found 0(.|\n)*queued.*'order': 'a'"):
        mainspring_cluster.assert_enqueued("charge", params={"order": "b"})
    with pytest.raises(AssertionError, match="expected 2"):
        mainspring_cluster.assert_enqueued("charge", count=2)


def test_mistakes_are_explained(mainspring_cluster: Cluster) -> None:
    with pytest.raises(Invalid, match=r"is not a time such as"):
        mainspring_cluster.travel_to("tomorrow")
    with pytest.raises(Invalid, match="cannot travel back"):
        mainspring_cluster.travel_to("2020-01-01T00:00Z")
    with pytest.raises(Invalid, match="not a time zone"):
        mainspring_cluster.travel_to("2027-01-01T00:00", tz="Europe/Berlni")
    with pytest.raises(Invalid, match="declares no job"):
        mainspring_cluster.load("json")
    with pytest.raises(Invalid, match=r"add @ms\.job"):
        mainspring_cluster.load(lambda: None)
