"""Whatever a person does leaves an entry, in the same transaction."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.audit import ACTIONS
from mainspring.domain.errors import Conflict, Invalid
from mainspring.intake import dead_letters, dependencies, executions, jobs, queues, replays
from mainspring.intake import runs as run_actions
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.db import Database
from mainspring.views import audit as audit_views
from mainspring.views import dead_letters as dead_letter_views
from mainspring.views import executions as execution_views
from mainspring.views import refs
from tests.support.dependent_jobs import Jobs
from tests.support.runs import TENANT

pytestmark = pytest.mark.anyio

WHO: dict[str, Any] = {"tenant": TENANT, "by": "a new user"}


@pytest.fixture
async def bench(fresh: Database) -> Jobs:
    made = Jobs(fresh)
    for name in ("a", "b"):
        await made.job(name)
    return made


async def entries(bench: Jobs, **wanted: Any) -> list[tuple[str, str | None, str | None]]:
    found = await audit_views.list_entries(bench.database, tenant=TENANT, **wanted)
    assert {entry.actor for entry in found.items} <= {"a new user", "test"}
    return [(entry.action, entry.name, entry.reason) for entry in found.items]


async def id_of(bench: Jobs, name: str) -> UUID:
    return (await refs.job_row(bench.database, name, tenant=TENANT)).job_id


async def test_what_is_done_to_jobs(bench: Jobs) -> None:
    database, job_id = bench.database, await id_of(bench, "a")
    await jobs.patch(database, job_id, {"priority": 7}, **WHO)
    await jobs.pause(database, job_id, reason="holiday", **WHO)
    assert await jobs.resume(database, job_id, **WHO)
    assert not await jobs.resume(database, job_id, **WHO), "nothing was done"
    await jobs.delete(database, job_id, **WHO)
    assert await entries(bench, subject=str(job_id)) == [
        ("job.delete", "a", None),
        ("job.resume", "a", None),
        ("job.pause", "a", "holiday"),
        ("job.edit", "a", None),
        ("job.create", "a", None),
    ]
    (edit,) = (await audit_views.list_entries(database, tenant=TENANT, action="job.edit")).items
    assert edit.details == {"version": 2, "fields": ["priority"], "changes": {"priority": [5, 7]}}


async def test_secrets_in_a_definition_are_masked_and_long_values_counted(bench: Jobs) -> None:
    database, job_id = bench.database, await id_of(bench, "a")
    hidden, allowed = "hunter2-correct-horse", ["env.DB_PASSWORD"]
    task = {"kind": "shell", "argv": ["x"], "env": {"DB_PASSWORD": hidden, "MODE": "fast"}}
    await jobs.patch(database, job_id, {"task": task, "allow_plaintext": allowed, "description": "d" * 3000}, **WHO)
    (edit,) = (await audit_views.list_entries(database, tenant=TENANT, action="job.edit")).items
    assert hidden not in str(edit.details)
    assert edit.details["changes"]["task"][1]["env"] == {"DB_PASSWORD": "•••", "MODE": "fast"}
    assert edit.details["changes"]["description"][1] == "(3,002 characters)"


async def test_what_is_done_to_runs_and_steps(bench: Jobs) -> None:
    steps = {
        **{name: {"approval": {"self_approval": True}} for name in ("sign", "no", "left", "done")},
        "sent": {"event": {"name": "go"}},
        "open": {"approval": {}},
    }
    run = await bench.begin("flow", steps)
    runs, run_id = bench.runs, run.run_id
    await run_actions.decide(runs, run_id, "sign", wire.Decision(note="seen"), scopes=["write"], approved=True, **WHO)
    await run_actions.decide(runs, run_id, "no", wire.Decision(note="bad"), scopes=["write"], approved=False, **WHO)
    with pytest.raises(Conflict):
        await run_actions.decide(runs, run_id, "no", wire.Decision(note="good"), scopes=["write"], approved=True, **WHO)
    await run_actions.skip(runs, run_id, "left", "not today", **WHO)
    await run_actions.force_complete(runs, run_id, "done", "by hand", None, **WHO)
    await run_actions.send_event(runs, run_id, "go", None, **WHO)
    await run_actions.cancel(runs, run_id, reason="enough", **WHO)
    again = await run_actions.rerun(runs, run_id, wire.Rerun(), **WHO)
    assert await entries(bench, subject=str(run_id)) == [
        ("run.rerun", "flow", None),
        ("run.cancel", "flow", "enough"),
        ("run.event", "flow", None),
        ("step.force_complete", "flow.done", "by hand"),
        ("step.skip", "flow.left", "not today"),
        ("step.reject", "flow.no", "bad"),
        ("step.approve", "flow.sign", "seen"),
    ]
    (rerun,) = (await audit_views.list_entries(bench.database, tenant=TENANT, action="run.rerun")).items
    assert rerun.details["new_run_id"] == str(again.run_id)


async def test_what_is_done_to_executions_dead_letters_and_queues(bench: Jobs) -> None:
    database = bench.database
    waiting = await Submitter(database).submit(Submission(TENANT, "test", await id_of(bench, "a")))
    await executions.cancel(database, waiting, reason="too many", **WHO)
    for _ in range(2):
        await bench.execute("b", "failed")
    letters = (await dead_letter_views.list_dead_letters(database, tenant=TENANT)).items
    await dead_letters.dismiss(database, letters[0].dead_letter_id, reason="known", **WHO)
    await dead_letters.dismiss(database, letters[0].dead_letter_id, reason="known", **WHO)
    await replays.replay_one(database, letters[1].dead_letter_id, wire.ReplayOne(), **WHO)
    await queues.change(database, "short", {"cap": 3}, **WHO)
    assert await entries(bench, actor="a new user") == [
        ("queue.change", "short", None),
        ("dead_letter.replay", None, None),
        ("dead_letter.dismiss", None, "known"),
        ("execution.cancel", "a", "too many"),
    ]
    assert await entries(bench, subject="short", action="queue") == [("queue.change", "short", None)]


async def test_a_refused_change_leaves_no_entry(bench: Jobs) -> None:
    job_id = await id_of(bench, "a")
    with pytest.raises(Invalid):
        await jobs.patch(bench.database, job_id, {"priority": 70}, **WHO)
    with pytest.raises(Conflict):
        await dependencies.free(bench.database, "a", "why not", freed_as="forced", **WHO)
    assert await entries(bench, actor="a new user") == []


@pytest.mark.parametrize("freed_as", ["forced", "skipped"])
@pytest.mark.parametrize("started", [False, True])
async def test_the_latest_execution_of_a_job_is_decided_about(bench: Jobs, freed_as: str, started: bool) -> None:
    execution_id = await Submitter(bench.database).submit(Submission(TENANT, "test", await id_of(bench, "a")))
    rows = await bench.claim() if started else []
    await dependencies.free(bench.database, "a", "by hand", freed_as=freed_as, **WHO)
    if started:
        await bench.end(rows, lambda _: "cancelled")
    found = await execution_views.get(bench.database, execution_id, tenant=TENANT)
    did = "completed" if freed_as == "forced" else "skipped"
    assert (found.state, found.reason) == ("cancelled", f"{did} by a new user: by hand")
    (entry,) = (await audit_views.list_entries(bench.database, tenant=TENANT, actor="a new user")).items
    assert entry.action == ("job.force_complete" if freed_as == "forced" else "job.skip")
    assert entry.details == {"freed": 0, "execution_id": str(execution_id)}


async def test_entries_are_read_in_pages_by_actor_and_action(bench: Jobs) -> None:
    job_id = await id_of(bench, "a")
    for n in range(5):
        await jobs.pause(bench.database, job_id, tenant=TENANT, reason=str(n), by=f"user {n % 2}")
    first = await audit_views.list_entries(bench.database, tenant=TENANT, limit=2, action="job.pause")
    rest = await audit_views.list_entries(
        bench.database, tenant=TENANT, limit=5, cursor=first.next_cursor, action="job.pause"
    )
    assert [e.reason for e in [*first.items, *rest.items]] == ["4", "3", "2", "1", "0"] and rest.next_cursor is None
    mine = await audit_views.list_entries(
        bench.database, tenant=TENANT, actor="user 1", action="job.pause", subject="a"
    )
    assert [e.reason for e in mine.items] == ["3", "1"]
    assert (await audit_views.list_entries(bench.database, tenant=2)).items == []
    for wrong in ({"action": "job.eat"}, {"cursor": "x"}, {"limit": 0}):
        with pytest.raises(Invalid):
            await audit_views.list_entries(bench.database, tenant=TENANT, **wrong)


async def test_nothing_changes_what_was_written(bench: Jobs) -> None:
    await jobs.pause(bench.database, await id_of(bench, "a"), reason="x", **WHO)
    for statement in ("UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"):
        async with bench.database.connection() as connection:
            with pytest.raises(asyncpg.RaiseError):
                await connection.execute(statement)


def test_actions_are_named_kind_and_verb() -> None:
    assert all(action.count(".") == 1 for action in ACTIONS)
