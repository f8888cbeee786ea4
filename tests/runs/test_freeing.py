"""A failed step that a user skips or completes: the steps behind it continue, in the same run or in a new one."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring import wire
from mainspring.domain.errors import Conflict, Forbidden
from mainspring.intake import runs as run_actions
from mainspring.store.db import Database
from mainspring.views import audit as audit_views
from mainspring.views import dead_letters as dead_letter_views
from tests.runs.test_random import ROUNDS, executions_of, graphs, model
from tests.support.runs import NOT_NOW, TENANT, RunBench, states

pytestmark = pytest.mark.anyio

WHO: dict[str, Any] = {"tenant": TENANT, "by": "a new user"}
HOLD: dict[str, Any] = {"hold": {"approval": {}}}
"""Keeps a run open."""
numbers = itertools.count()


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def complete(bench: RunBench, run: wire.Run, step: str, result: Any = None, **who: Any) -> wire.Run:
    return await run_actions.force_complete(bench.runs, run.run_id, step, "by hand", result, **(WHO | who))


async def skip(bench: RunBench, run: wire.Run, step: str) -> wire.Run:
    return await run_actions.skip(bench.runs, run.run_id, step, "not today", **WHO)


async def approve(bench: RunBench, run: wire.Run) -> None:
    await run_actions.decide(bench.runs, run.run_id, "hold", wire.Decision(), scopes=("write",), approved=True, **WHO)


async def letters(bench: RunBench) -> dict[str, wire.DeadLetter]:
    found = (await dead_letter_views.list_dead_letters(bench.database, tenant=TENANT)).items
    return {letter.title: letter for letter in found}


async def test_steps_behind_a_freed_step_of_a_running_run_go_on(bench: RunBench) -> None:
    steps = {
        "load": {}, "check": {"needs": ["load"], "when": "steps.load.result.rows == 7"}, "end": {"needs": ["check"]},
        "clean": {"needs": ["load"], "rule": "all_done"}, **HOLD,
    }  # fmt: skip
    run = await bench.begin("nightly", steps)
    await bench.work(lambda name: "failed" if name == "load" else "succeeded")
    before = await bench.get(run)
    assert states(before) == {
        "load": "failed", "check": "skipped", "end": "skipped", "clean": "succeeded", "hold": "waiting",
    }  # fmt: skip
    found = await complete(bench, run, "load", {"rows": 7})
    assert found.run_id == run.run_id
    assert states(found) | {"clean": ""} == {
        "load": "succeeded", "check": "running", "end": "blocked", "clean": "", "hold": "waiting",
    }  # fmt: skip
    load = found.steps[0]
    assert (load.flag, load.reason, load.decided_by) == ("forced", "completed by a new user: by hand", "a new user")
    await bench.work()
    await approve(bench, run)
    found = await bench.get(run)
    assert found.state == "succeeded" and bench.log == ["load", "clean", "check", "end"], "nothing ran twice"


async def test_a_skipped_step_is_seen_as_skipped_by_those_behind_it(bench: RunBench) -> None:
    steps = {"load": {}, "end": {"needs": ["load"], "when": "upstream.load == 'skipped'"}, **HOLD}
    run = await bench.begin("skipping", steps)
    await bench.work(lambda _: "timed_out")
    found = await skip(bench, run, "load")
    assert (found.steps[0].state, found.steps[0].flag, states(found)["end"]) == ("skipped", "skipped", "running")


async def test_the_dead_letter_of_a_freed_step_is_resolved_by_who_freed_it(bench: RunBench) -> None:
    run = await bench.begin("lettered", {"load": {}, "each": {"map": "[1, 2]"}, **HOLD})
    await bench.work(lambda _: "failed")
    await complete(bench, run, "load")
    await skip(bench, run, "each")
    for letter in (await dead_letter_views.list_dead_letters(bench.database, tenant=TENANT)).items:
        assert (letter.state, letter.closed_by, letter.resolved_by) == ("resolved", "a new user", run.run_id)
        assert letter.close_reason in ("completed by a new user: by hand", "skipped by a new user: not today")
    await approve(bench, run)
    assert (await bench.get(run)).state == "succeeded"


async def test_the_audit_log_says_who_freed_what_and_why(bench: RunBench) -> None:
    run = await bench.begin("audited", {"load": {}, **HOLD})
    await bench.work(lambda _: "failed")
    await complete(bench, run, "load")
    (entry,) = (await audit_views.list_entries(bench.database, tenant=TENANT, action="step.force_complete")).items
    assert (entry.actor, entry.name, entry.reason) == ("a new user", "audited.load", "by hand")
    assert entry.details == {"step": "load", "state": "failed"}


async def test_after_the_end_of_the_run_a_new_one_continues(bench: RunBench) -> None:
    steps = {"load": {}, "other": {}, "check": {"needs": ["load"]}, "end": {"needs": ["check", "other"]}}
    run = await bench.begin("ended", steps)
    await bench.work(lambda name: "failed" if name == "load" else "succeeded")
    assert (await bench.get(run)).state == "failed"
    bench.log.clear()
    new = await complete(bench, run, "load", {"rows": 1})
    assert new.run_id != run.run_id and new.rerun_of == run.run_id
    assert states(new) == {"load": "succeeded", "other": "succeeded", "check": "running", "end": "blocked"}
    assert [step.flag for step in new.steps] == ["forced", "kept", None, None]
    await bench.work()
    assert (await bench.get(new)).state == "succeeded" and bench.log == ["check", "end"]
    old = await bench.get(run)
    assert old.state == "failed" and states(old)["load"] == "failed", "what has ended does not change"
    (entry,) = (await audit_views.list_entries(bench.database, tenant=TENANT, action="step.force_complete")).items
    assert entry.details == {"step": "load", "state": "failed", "new_run_id": str(new.run_id)}
    found = await letters(bench)
    assert found["ended / load"].state == "resolved" and found["ended / load"].resolved_by == new.run_id
    assert found["ended / load"].closed_by == "a new user"
    assert found["ended"].state == "replaying" and found["ended"].replayed_as == new.run_id


async def test_freeing_the_last_step_ends_the_new_run_at_once(bench: RunBench) -> None:
    run = await bench.begin("last", {"a": {}, "b": {"needs": ["a"]}})
    await bench.work(lambda name: "failed" if name == "b" else "succeeded")
    assert (await skip(bench, run, "b")).state == "succeeded"


async def test_other_failed_steps_are_executed_again_in_the_new_run(bench: RunBench) -> None:
    run = await bench.begin("two", {"a": {}, "b": {}, "end": {"needs": ["a", "b"]}})
    await bench.work(lambda _: "failed")
    bench.log.clear()
    new = await complete(bench, run, "a")
    assert states(new) == {"a": "succeeded", "b": "running", "end": "blocked"}
    await bench.work()
    assert (await bench.get(new)).state == "succeeded" and bench.log == ["b", "end"]


async def test_a_step_stays_skipped_while_another_need_of_it_has_failed(bench: RunBench) -> None:
    run = await bench.begin("both", {"a": {}, "b": {}, "end": {"needs": ["a", "b"]}, **HOLD})
    await bench.work(lambda _: "failed")
    assert states(await complete(bench, run, "a"))["end"] == "skipped"
    assert states(await complete(bench, run, "b"))["end"] == "running"


async def test_a_user_who_may_not_approve_can_not_free_the_gate_either(bench: RunBench) -> None:
    gate = {"approval": {"scope": "admin"}}
    run = await bench.begin("gated", {"sign": gate, "b": {"needs": ["sign"]}})
    await run_actions.decide(bench.runs, run.run_id, "sign", wire.Decision(), scopes=("admin",), approved=False, **WHO)
    assert (await bench.get(run)).state == "failed"
    with pytest.raises(Forbidden):
        await run_actions.skip(bench.runs, run.run_id, "sign", "please", scopes=("operate",), **WHO)
    with pytest.raises(Forbidden, match="another token"):  # who started it can not approve it
        await run_actions.skip(bench.runs, run.run_id, "sign", "please", scopes=("admin",), tenant=TENANT, by="test")


async def test_what_can_not_be_freed_says_why(bench: RunBench) -> None:
    run = await bench.begin(
        "refused", {"a": {}, "b": {"needs": ["a"]}, "c": {}, "d": {"rule": "always", "needs": ["c"]}}
    )
    rows = await bench.claim()
    await bench.end([row for row in rows if row[0] == "a"], lambda _: "failed")
    with pytest.raises(Conflict, match="skip or complete the failed step that it needs"):
        await skip(bench, run, "b")
    await run_actions.cancel(bench.runs, run.run_id, **WHO)
    with pytest.raises(Conflict, match="being cancelled"):
        await skip(bench, run, "a")
    await bench.end([row for row in rows if row[0] == "c"], lambda _: "cancelled")
    await bench.work()
    assert (await bench.get(run)).state == "cancelled"
    assert (await skip(bench, run, "a")).rerun_of == run.run_id


async def test_a_step_is_freed_once_however_many_try(bench: RunBench) -> None:
    run = await bench.begin("race", {"a": {}, "b": {"needs": ["a"]}, **HOLD})
    await bench.work(lambda _: "failed")

    async def attempt() -> bool:
        try:
            await complete(bench, run, "a")
        except NOT_NOW:
            return False
        return True

    assert sum(await asyncio.gather(*(attempt() for _ in range(8)))) == 1
    assert [name for name, _ in await bench.claim()] == ["b"]


@settings(
    max_examples=ROUNDS,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(chosen=st.lists(graphs(), min_size=5, max_size=5), seed=st.integers(0, 2**32))
async def test_a_freed_step_leads_to_the_states_of_a_run_in_which_it_succeeded(
    database: Database, chosen: list[tuple[dict[str, Any], set[str]]], seed: int
) -> None:
    """At any time, in any order: nothing runs twice, and the counts of the run stay right."""
    bench, rng = RunBench(database), random.Random(seed)
    for steps, fails in chosen:
        run = await bench.begin(f"freed-{next(numbers)}", {**steps, **HOLD})
        doomed = await executions_of(database, run, fails)
        freed = {name for name in sorted(fails) if rng.random() < 0.7}
        left = set(freed)
        while True:
            if rows := await bench.claim():
                rng.shuffle(rows)
                for row in rows:
                    bad = row[1]["execution_id"] in doomed
                    await bench.end([row], lambda _, bad=bad: "failed" if bad else "succeeded")  # type: ignore[misc]
                    if rng.random() < 0.5:
                        await _free_some(bench, run, left, rng)
            elif not await _free_some(bench, run, left, rng):
                break
        await approve(bench, run)
        found = await bench.get(run)
        shown = {name: "succeeded" if name in freed else state for name, state in states(found).items()}
        expected, _ = model({**steps, "hold": {}}, fails - freed)
        # A step that no failure or freeing ever reached was skipped, and is neither failed nor freed.
        expected |= dict.fromkeys(freed, "succeeded")
        assert {n: s for n, s in shown.items() if n not in left} == {n: s for n, s in expected.items() if n not in left}
        assert found.open_steps == 0
        ran = [step.execution_id for step in found.steps if step.execution_id is not None]
        assert len(ran) == len(set(ran))


async def _free_some(bench: RunBench, run: wire.Run, left: set[str], rng: random.Random) -> bool:
    found = await bench.get(run)
    failed = [name for name, state in states(found).items() if state == "failed" and name in left]
    for name in failed:
        await (complete if rng.random() < 0.5 else skip)(bench, run, name)
        left.discard(name)
    return bool(failed)
