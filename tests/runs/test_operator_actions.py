"""What people and time do to runs: approve, skip, complete, cancel, repeat, wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Forbidden, Invalid, NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.duties.workflow_timers import WorkflowTimers
from mainspring.intake import executions, jobs, workflows
from mainspring.intake import runs as run_actions
from mainspring.intake.replays import replay_one
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views import executions as execution_views
from tests.support.runs import TENANT, RunBench, states

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


GATE: dict[str, Any] = {"a": {}, "sign": {"needs": ["a"], "approval": {"expires": "3d"}}, "b": {"needs": ["sign"]}}


async def decide(bench: RunBench, run: wire.Run, *, approved: bool, scopes: tuple[str, ...] = ("write",)) -> wire.Run:
    return await run_actions.decide(
        bench.runs,
        run.run_id,
        "sign",
        wire.Decision(note="seen"),
        tenant=TENANT,
        by="a new user",
        scopes=scopes,
        approved=approved,
    )


@pytest.mark.requirement(108)
async def test_an_approval_waits_for_days_at_no_cost_and_keeps_name_and_note(
    bench: RunBench, virtual: VirtualClock
) -> None:
    run = await bench.begin("gate", {**GATE, "b": {"needs": ["sign"], "when": "steps.sign.result.approved"}})
    await bench.work()
    await virtual.advance(seconds=2 * 86400)
    assert await bench.claim() == []
    async with bench.database.connection() as connection:
        # Nothing lives of it but the run itself: no execution waits, and nobody looks before it expires.
        assert await connection.fetchval("SELECT count(*) FROM executions") == 1
    assert await bench.timers.run_due() == pytest.approx(86400, abs=60)
    found = await decide(bench, run, approved=True)
    sign = found.steps[1]
    assert (sign.state, sign.decided_by, sign.result) == (
        "succeeded",
        "a new user",
        {"approved": True, "by": "a new user", "note": "seen"},
    )
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_a_rejection_fails_the_step_and_a_second_answer_changes_nothing(bench: RunBench) -> None:
    run = await bench.begin("gate", GATE)
    with pytest.raises(Conflict):
        await decide(bench, run, approved=True)
    await bench.work()
    found = await decide(bench, run, approved=False)
    assert states(found) == {"a": "succeeded", "sign": "failed", "b": "skipped"}
    with pytest.raises(Conflict) as caught:
        await decide(bench, run, approved=True)
    assert "failed" in caught.value.message


async def test_an_approval_that_needs_an_admin_is_not_given_by_others(bench: RunBench) -> None:
    run = await bench.begin("gate", {"sign": {"approval": {"scope": "admin"}}})
    with pytest.raises(Forbidden):
        await decide(bench, run, approved=True)
    assert (await decide(bench, run, approved=True, scopes=("admin",))).state == "succeeded"


async def test_the_message_of_an_approval_shows_the_results_that_it_names(bench: RunBench) -> None:
    message = "Publish {{steps.check.result.rows}} rows of {{ params.day }}? {{steps.check.result.none}}"
    steps = {"check": {}, "sign": {"needs": ["check"], "approval": {"message": message}}}
    run = await bench.begin("publish", steps, params={"day": {"type": "string", "default": "today"}})
    assert run.steps[1].message == "Publish – rows of today? –"
    await bench.work(results={"check": {"rows": 4711}})
    found = await bench.get(run)
    assert found.steps[1].message == "Publish 4711 rows of today? –"
    listed = await bench.run_views.steps_by_ref(found, [(1, -1)], tenant=TENANT)
    assert listed[0].message == "Publish 4711 rows of today? –"


async def test_who_may_not_approve_may_not_go_around_it_either(bench: RunBench) -> None:
    run = await bench.begin(
        "guarded", {"sign": {"approval": {"scope": "admin", "message": "ship it?"}}, "free": {"approval": {}}}
    )
    assert (run.steps[0].message, run.steps[0].scope) == ("ship it?", "admin")
    who: dict[str, Any] = {"tenant": TENANT, "by": "a new user"}
    for scopes in ((), ("read", "write")):
        with pytest.raises(Forbidden):
            await run_actions.skip(bench.runs, run.run_id, "sign", "in a hurry", scopes=scopes, **who)
        with pytest.raises(Forbidden):
            await run_actions.force_complete(bench.runs, run.run_id, "sign", "in a hurry", None, scopes=scopes, **who)
    await run_actions.skip(bench.runs, run.run_id, "free", "not today", scopes=("write",), **who)
    found = await run_actions.skip(bench.runs, run.run_id, "sign", "not today", scopes=("admin",), **who)
    assert found.state == "succeeded"


async def test_an_approval_nobody_gives_expires(bench: RunBench, virtual: VirtualClock) -> None:
    run = await bench.begin("gate", GATE)
    await bench.work()
    await virtual.advance(seconds=3 * 86400 + 1)
    await bench.timers.run_due()
    assert states(await bench.get(run)) == {"a": "succeeded", "sign": "timed_out", "b": "skipped"}


async def test_a_wait_until_an_instant_that_the_run_gives(bench: RunBench, virtual: VirtualClock) -> None:
    steps = {
        "plan": {},
        "nap": {"wait": {"until": "{{steps.plan.result.at}}"}, "needs": ["plan"]},
        "go": {"needs": ["nap"]},
    }
    run = await bench.begin("until", steps)
    await bench.work(results={"plan": {"at": "2026-11-18T09:00:00+01:00"}})
    (nap,) = [s for s in (await bench.get(run)).steps if s.name == "nap"]
    assert (nap.state, nap.wake_at) == ("waiting", datetime(2026, 11, 18, 8, tzinfo=UTC))
    assert await bench.timers.run_due() == (44 * 3600), "whoever leads sleeps until then"
    await virtual.advance(hours=43, minutes=59)
    await bench.work()
    assert states(await bench.get(run))["nap"] == "waiting"
    await virtual.advance(minutes=1)
    bench.timers = WorkflowTimers(bench.database)  # another process after a restart: nothing was in memory
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"
    passed = await bench.start("until")
    await bench.work(results={"plan": {"at": "2020-01-01T00:00:00Z"}})
    assert (await bench.get(passed)).state == "succeeded", "an instant that has passed is no reason to wait"
    wrong = await bench.start("until")
    await bench.work(results={"plan": {"at": "soon"}})
    found = await bench.get(wrong)
    assert (found.state, states(found)["nap"]) == ("failed", "failed")
    assert "'soon' is not a timestamp" in (found.steps[1].reason or "")


async def test_a_wait_ends_by_itself(bench: RunBench, virtual: VirtualClock) -> None:
    run = await bench.begin("waits", {"pause": {"wait": "2h"}, "b": {"needs": ["pause"]}})
    await bench.timers.run_due()
    assert states(await bench.get(run)) == {"pause": "waiting", "b": "blocked"}
    await virtual.advance(seconds=2 * 3600 + 1)
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_an_event_lets_its_step_go_on_once(bench: RunBench) -> None:
    steps = {"file": {"event": {"name": "arrived"}}, "b": {"needs": ["file"], "when": "steps.file.result.rows > 1"}}
    run = await bench.begin("events", steps)
    await run_actions.send_event(bench.runs, run.run_id, "arrived", {"rows": 2}, tenant=TENANT, by="a new user")
    with pytest.raises(Conflict) as caught:
        await run_actions.send_event(bench.runs, run.run_id, "arrived", {"rows": 0}, tenant=TENANT, by="another")
    assert caught.value.code == "event_repeated" and "a new user" in caught.value.message
    with pytest.raises(NotFound):
        await run_actions.send_event(bench.runs, run.run_id, "departed", None, tenant=TENANT, by="a new user")
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_an_event_may_come_before_its_step(bench: RunBench) -> None:
    run = await bench.begin("early", {"a": {}, "file": {"needs": ["a"], "event": {"name": "arrived"}}})
    await run_actions.send_event(bench.runs, run.run_id, "arrived", None, tenant=TENANT, by="a new user")
    await bench.work()
    assert (await bench.get(run)).state == "succeeded"


async def test_a_step_that_is_skipped_by_a_person_frees_those_behind_and_they_see_it(bench: RunBench) -> None:
    see = {"kind": "http", "url": "http://x/{{upstream.a}}"}
    run = await bench.begin("skipped", {"a": {}, "b": {"needs": ["a"], "task": see}})
    with pytest.raises(Invalid):
        await run_actions.skip(bench.runs, run.run_id, "a", " ", tenant=TENANT, by="a new user")
    found = await run_actions.skip(bench.runs, run.run_id, "a", "no input today", tenant=TENANT, by="a new user")
    assert (found.steps[0].state, found.steps[0].flag) == ("skipped", "skipped")
    assert found.steps[0].reason == "skipped by a new user: no input today"
    ((name, row),) = await bench.claim()
    assert name == "b" and row["params"] == {"upstream_a": "skipped"}
    await bench.end([(name, row)])
    assert (await bench.get(run)).state == "succeeded"


async def test_a_running_step_can_be_completed_by_force_and_its_late_result_changes_nothing(bench: RunBench) -> None:
    run = await bench.begin("forced", {"a": {}, "b": {"needs": ["a"], "when": "steps.a.result == 5"}})
    rows = await bench.claim()
    found = await run_actions.force_complete(bench.runs, run.run_id, "a", "by hand", 5, tenant=TENANT, by="a new user")
    assert states(found) == {"a": "succeeded", "b": "running"}
    await bench.end(rows, lambda _: "cancelled")
    await bench.work()
    found = await bench.get(run)
    assert found.state == "succeeded" and found.steps[0].flag == "forced" and bench.log == ["a", "b"]
    with pytest.raises(Conflict):
        await run_actions.force_complete(bench.runs, run.run_id, "a", "again", None, tenant=TENANT, by="a new user")


async def test_a_cancelled_run_ends_and_what_always_runs_still_does(bench: RunBench) -> None:
    steps = {"a": {}, "b": {"needs": ["a"]}, "gate": {"approval": {}}, "clean": {"needs": ["a"], "rule": "always"}}
    run = await bench.begin("cancelled", steps)
    rows = await bench.claim()
    found = await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user", reason="wrong day")
    assert found.state == "cancelling"
    assert states(found) == {"a": "running", "b": "cancelled", "gate": "cancelled", "clean": "blocked"}
    await bench.end(rows, lambda _: "cancelled")
    await bench.work()
    found = await bench.get(run)
    assert bench.log == ["a", "clean"] and states(found)["clean"] == "succeeded"
    assert (found.state, found.reason) == ("cancelled", "cancelled by a new user: wrong day")
    head = await execution_views.get(bench.database, run.run_id, tenant=TENANT)
    assert head.state == "cancelled"
    with pytest.raises(Conflict):
        await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user")


async def test_a_run_that_has_not_started_anything_is_cancelled_at_once(bench: RunBench) -> None:
    run = await bench.begin("early", {"a": {}, "b": {"needs": ["a"]}})
    assert (await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user")).state == "cancelled"
    assert await bench.claim() == []


async def test_cancelling_a_run_cancels_the_run_inside_it(bench: RunBench) -> None:
    await bench.apply("inner", {"x": {"approval": {}}})
    run = await bench.begin("outer", {"sub": {"workflow": "inner"}})
    await bench.timers.run_due()
    assert (await run_actions.cancel(bench.runs, run.run_id, tenant=TENANT, by="a new user")).state == "cancelled"


async def test_cancelling_the_execution_that_a_run_is_cancels_the_run(bench: RunBench) -> None:
    run = await bench.begin("by-id", {"x": {"approval": {}}})
    await executions.cancel(bench.database, run.run_id, tenant=TENANT, by="a new user", reason="")
    await bench.timers.run_due()
    assert (await bench.get(run)).state == "cancelled"


async def test_cancelling_the_execution_of_a_step_ends_the_step(bench: RunBench) -> None:
    run = await bench.begin("one", {"a": {}, "b": {"needs": ["a"]}})
    execution = run.steps[0].execution_id
    assert execution is not None
    await executions.cancel(bench.database, execution, tenant=TENANT, by="a new user", reason="")
    assert states(await bench.get(run)) == {"a": "cancelled", "b": "skipped"}


async def test_a_run_that_takes_too_long_times_out(bench: RunBench, virtual: VirtualClock) -> None:
    run = await bench.begin("slow", {"x": {"approval": {}}}, timeout="1h", sla="10m")
    assert (
        run.sla_at is not None and run.started_at is not None and run.sla_at - run.started_at == timedelta(minutes=10)
    )
    await virtual.advance(seconds=3601)
    await bench.timers.run_due()
    found = await bench.get(run)
    assert (found.state, found.reason) == ("timed_out", "timed out: it took longer than 1h")
    assert "the run timed out" in {step.reason for step in found.steps}


async def test_a_rerun_keeps_what_had_succeeded(bench: RunBench) -> None:
    steps = {"a": {}, "b": {"needs": ["a"]}, "c": {"needs": ["b"], "when": "steps.a.result == 1"}}
    run = await bench.begin("again", steps)
    with pytest.raises(Conflict):
        await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    await bench.work(lambda name: "failed" if name == "b" else "succeeded", {"a": 1})
    bench.log.clear()
    new = await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    assert states(new) == {"a": "succeeded", "b": "running", "c": "blocked"}
    assert new.steps[0].flag == "kept" and new.rerun_of == run.run_id
    await bench.work()
    assert (await bench.get(new)).state == "succeeded" and bench.log == ["b", "c"]
    assert (await bench.get(run)).state == "failed"
    whole = await run_actions.rerun(bench.runs, new.run_id, wire.Rerun(from_step="a"), tenant=TENANT, by="a new user")
    assert states(whole)["a"] == "running"


async def test_a_rerun_leaves_what_a_condition_or_a_person_skipped_and_all_behind_it(bench: RunBench) -> None:
    steps: dict[str, Any] = {
        "a": {}, "left": {"needs": ["a"], "when": "false"}, "right": {"needs": ["a"]}, "by_hand": {"needs": ["a"]},
        "join": {"needs": ["left", "right", "by_hand"], "rule": "none_failed"}, "b": {"needs": ["join"]},
        "other": {}, "behind": {"needs": ["other"]},
    }  # fmt: skip
    run = await bench.begin("branches", steps)
    await run_actions.skip(bench.runs, run.run_id, "by_hand", "not today", tenant=TENANT, by="a new user")
    await bench.work(lambda name: "failed" if name in ("b", "other") else "succeeded")
    bench.log.clear()
    new = await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    assert {s.name: s.flag for s in new.steps if s.flag} == {
        "a": "kept",
        "right": "kept",
        "join": "kept",
        "by_hand": "skipped",
    }
    assert states(new)["left"] == "skipped"
    await bench.work()
    found = await bench.get(new)
    assert found.state == "succeeded" and sorted(bench.log) == ["b", "behind", "other"]
    with pytest.raises(Conflict, match="no step has failed"):
        await run_actions.rerun(bench.runs, new.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    bench.log.clear()
    await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(from_step="join"), tenant=TENANT, by="a new user")
    await bench.work()
    assert sorted(bench.log) == ["b", "behind", "join", "other"]


async def test_what_can_not_be_done_with_a_deleted_workflow_says_the_way_out(bench: RunBench) -> None:
    run = await bench.begin("doomed", {"a": {}})
    await bench.work(lambda _: "failed")
    await workflows.delete(bench.database, "doomed", tenant=TENANT, by="a new user")
    for change in (
        run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), tenant=TENANT, by="a new user"),
        run_actions.skip(bench.runs, run.run_id, "a", "it is fine", tenant=TENANT, by="a new user"),
    ):
        with pytest.raises(Conflict, match="doomed was deleted"):
            await change


async def test_a_rerun_keeps_to_the_limit_of_runs(bench: RunBench) -> None:
    await bench.apply("tight", {"a": {}}, concurrency={"key": "tight", "limit": 1})
    first = await bench.start("tight")
    await bench.work(lambda _: "failed")
    second = await bench.start("tight")
    await bench.timers.run_due()
    with pytest.raises(Conflict, match="'tight'"):
        await run_actions.rerun(bench.runs, first.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    assert [r.run_id for r in (await bench.run_views.list_runs(tenant=TENANT)).items] == [second.run_id, first.run_id]
    await bench.work()
    new = await run_actions.rerun(bench.runs, first.run_id, wire.Rerun(), tenant=TENANT, by="a new user")
    assert new.state == "running"


async def test_a_run_that_waits_for_its_turn_is_listed_and_cancelled_like_any_other(bench: RunBench) -> None:
    await bench.apply("narrow", {"a": {}}, concurrency={"limit": 1})
    first, second = await bench.start("narrow"), await bench.start("narrow")
    await bench.timers.run_due()
    for workflow in (None, "narrow"):
        found = (await bench.run_views.list_runs(tenant=TENANT, workflow=workflow)).items
        assert [(r.run_id, r.state) for r in found] == [(second.run_id, "queued"), (first.run_id, "running")]
    assert [r.state for r in (await bench.run_views.list_runs(tenant=TENANT, states=["queued"])).items] == ["queued"]
    page = await bench.run_views.list_runs(tenant=TENANT, limit=1)
    rest = await bench.run_views.list_runs(tenant=TENANT, limit=1, cursor=page.next_cursor)
    assert [r.run_id for r in (*page.items, *rest.items)] == [second.run_id, first.run_id]
    with pytest.raises(Conflict, match="has not started"):
        await run_actions.skip(bench.runs, second.run_id, "a", "early", tenant=TENANT, by="a new user")
    ended = await run_actions.cancel(bench.runs, second.run_id, tenant=TENANT, by="a new user", reason="not needed")
    assert (ended.state, ended.reason) == ("cancelled", "cancelled by a new user: not needed")
    assert (await bench.get(second)).state == "cancelled"
    for change in (
        run_actions.cancel(bench.runs, second.run_id, tenant=TENANT, by="a new user"),
        run_actions.rerun(bench.runs, second.run_id, wire.Rerun(), tenant=TENANT, by="a new user"),
    ):
        with pytest.raises(Conflict, match="before it started"):
            await change
    await bench.work()
    assert (await bench.get(first)).state == "succeeded"


async def test_an_execution_of_a_job_is_no_run(bench: RunBench) -> None:
    job_id = await jobs.create(bench.database, JobSpec(name="plain", task=NoopTask()), tenant=TENANT, by="test")
    execution = await executions.Submitter(bench.database).submit(executions.Submission(TENANT, "test", job_id))
    with pytest.raises(NotFound):
        await bench.get(execution)


async def test_runs_under_a_key_wait_for_one_another(bench: RunBench) -> None:
    await bench.apply("narrow", {"a": {}}, concurrency={"limit": 1})
    first, second = await bench.start("narrow"), await bench.start("narrow")
    await bench.timers.run_due()
    assert [(await bench.get(r)).state for r in (first, second)] == ["running", "queued"]
    await bench.end(await bench.claim())
    await bench.work()
    assert [(await bench.get(r)).state for r in (first, second)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("params", [{"n": "x"}, {"m": 1}, {}])
async def test_params_of_a_run_are_checked(bench: RunBench, params: dict[str, Any]) -> None:
    await bench.apply("typed", {"a": {}}, params={"n": {"type": "integer"}})
    with pytest.raises(Invalid):
        await bench.start("typed", params)
    assert (await bench.start("typed", {"n": 3})).params == {"n": 3}


async def test_the_dead_letter_of_a_run_repeats_it_and_that_of_a_step_says_how(bench: RunBench) -> None:
    run = await bench.begin("two", {"a": {"retries": {"max": 0}}, "b": {"needs": ["a"]}})
    await bench.work(lambda name: "failed")
    assert (await bench.get(run)).state == "failed"
    letters = (await dead_letter_views.list_dead_letters(bench.database, tenant=TENANT)).items
    (step,) = (letter for letter in letters if letter.dead_letter_id != run.run_id)
    with pytest.raises(Invalid, match="mainspring runs rerun"):
        await replay_one(bench.database, step.dead_letter_id, wire.ReplayOne(), tenant=TENANT, by="a new user")
    await replay_one(bench.database, run.run_id, wire.ReplayOne(), tenant=TENANT, by="a new user")
    await bench.work()
    found = (await bench.run_views.list_runs(tenant=TENANT, limit=10)).items
    assert sorted(r.state for r in found) == ["failed", "succeeded"]
