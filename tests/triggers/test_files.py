"""Files that arrive in a folder start executions: which ones, when, with which params, and exactly once."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid
from mainspring.domain.params import Param
from mainspring.domain.watch import read_roots
from mainspring.duties.file_watch import FileWatch
from mainspring.duties.retention import Retention
from mainspring.intake.jobs.pause import pause, resume
from mainspring.intake.triggers import definitions, files
from mainspring.intake.triggers.decide import decide
from mainspring.store import trigger_files, triggers
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import fires, why_execution
from mainspring.views import triggers as views
from tests.support.inbox import BY, TENANT, Inbox

pytestmark = pytest.mark.anyio
OLD = timedelta(days=1)
STOPS = """
import asyncio, os, signal, sys
from mainspring.backends.watched_places import WatchedPlaces
from mainspring.domain.watch import read_roots
from mainspring.duties.file_watch import FileWatch
from mainspring.store import trigger_files
from mainspring.store.db import Database

async def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    dsn, folder, moment = sys.argv[1:]
    setattr(trigger_files, "decide_file" if moment == "before the commit" else "end_look", die)
    async with Database(dsn, size=2) as database:
        await FileWatch(database, WatchedPlaces(), read_roots([folder])).look_all()

asyncio.run(main())
"""


@pytest.fixture
async def inbox(fresh: Database, virtual: VirtualClock, tmp_path: Path) -> Inbox:
    return Inbox(fresh, virtual, tmp_path)


async def test_a_file_starts_one_execution_with_its_values(inbox: Inbox) -> None:
    await inbox.job(params={"file": Param(type="string"), "size": Param(type="integer"), "name": Param()})
    params = {"file": "{{file.path}}", "name": "{{file.name}} ({{file.modified_at}})"}
    await inbox.watch(pattern="*.csv", params=params, expressions={"size": "file.size"})
    await inbox.look()
    await inbox.clock.advance(seconds=30)
    inbox.write("a.csv", "abc")
    inbox.write("a.txt")
    await inbox.look()
    assert await inbox.executions() == [], "it may still be written"
    await inbox.look(later_s=30)
    (execution,) = await inbox.executions()
    assert execution.params == {
        "file": str(inbox.folder / "a.csv"),
        "size": 3,
        "name": "a.csv (2026-11-16T12:00:30Z)",
    }
    for _ in range(3):
        await inbox.look(later_s=30)
    assert len(await inbox.executions()) == 1
    inbox.write("a.csv", "abcd")
    await inbox.look(later_s=30)
    await inbox.look(later_s=30)
    assert [e.params["size"] for e in await inbox.executions()] == [3, 4], "another version starts another one"


async def test_a_file_that_grows_waits_until_it_is_unchanged(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(settle="20s", interval="5s")
    await inbox.look()
    for size in range(1, 5):
        inbox.write("a", "x" * size)
        await inbox.look(later_s=5)
    assert await inbox.executions() == []
    assert await inbox.look(later_s=5) == 5
    await inbox.look(later_s=15)
    assert await inbox.started() == ["a"]


async def test_the_next_look_comes_when_the_file_has_settled(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(settle="2s", interval="10m")
    inbox.write("a")
    wait_s = await inbox.look()
    assert wait_s == 2
    assert await inbox.look(later_s=2) == 600
    assert await inbox.started() == ["a"]


async def test_files_from_before_the_trigger_are_ignored_or_started(inbox: Inbox) -> None:
    await inbox.job()
    inbox.write("old", modified_at=inbox.clock.now - OLD)
    await inbox.watch("ignores", settle=0)
    await inbox.watch("starts", settle=0, existing="start")
    inbox.write("new")
    await inbox.look()
    await inbox.look(later_s=30)
    by_trigger: dict[str, list[str | None]] = {}
    for execution in await inbox.executions():
        assert execution.started_by is not None
        by_trigger.setdefault(execution.started_by.trigger, []).append(execution.started_by.event)
    assert {name: sorted(map(str, paths)) for name, paths in by_trigger.items()} == {
        "ignores": ["new"],
        "starts": ["new", "old"],
    }
    inbox.write("moved-in", modified_at=inbox.clock.now - OLD)
    await inbox.look(later_s=30)
    assert (await inbox.started()).count("moved-in") == 2, "after the first look, its age does not count"


async def test_a_look_starts_a_bounded_number_and_the_next_continues(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_STARTS", 4)
    monkeypatch.setattr("mainspring.backends.watched_folder.MAX_FILES", 6)
    await inbox.job()
    await inbox.watch(settle=0, existing="start", interval="1h")
    for number in range(10):
        inbox.write(f"f{number}")
    counts, waits = [], []
    for _ in range(5):
        wait_s = await inbox.look()
        assert wait_s is not None
        counts.append(len(await inbox.executions()))
        waits.append(wait_s)
        await inbox.clock.advance(seconds=wait_s)
    assert counts == [4, 6, 10, 10, 10]
    assert waits == [1, 1, 3600, 1, 3600], "the interval counts from the end of a pass"
    assert await inbox.started() == [f"f{number}" for number in range(10)]


async def test_conditions_filter_and_an_edit_decides_again(inbox: Inbox) -> None:
    await inbox.job(params={"n": Param(type="integer", default=0)})
    await inbox.watch(settle=0, when="file.size > 2", params={"n": "{{file.name}}"})
    inbox.write("small", "x")
    inbox.write("large", "xxx")
    await inbox.look()
    outcomes = {d.event: (d.outcome, d.reason) for d in await deliveries(inbox)}
    assert outcomes["small"] == ("filtered", "the condition is false: file.size > 2")
    assert outcomes["large"][0] == "refused" and "n" in str(outcomes["large"][1])
    await inbox.look(later_s=30)
    assert {d.repeats for d in await deliveries(inbox)} == {0}, "they are not decided at every look"
    await definitions.replace(
        inbox.database, "inbox", inbox.spec(settle=0, expressions={"n": "file.size"}), tenant=TENANT, by=BY
    )
    await inbox.look()
    assert await inbox.started() == ["large", "small"]


async def test_files_wait_for_a_paused_trigger_and_a_paused_job(inbox: Inbox) -> None:
    job_id = await inbox.job()
    await inbox.watch(settle=0)
    await inbox.look()
    await definitions.pause(inbox.database, "inbox", "maintenance", tenant=TENANT, by=BY)
    inbox.write("a")
    assert await inbox.look(later_s=60) is None
    assert await inbox.executions() == []
    await pause(inbox.database, job_id, reason="holiday", tenant=TENANT)
    await definitions.resume(inbox.database, "inbox", tenant=TENANT, by=BY)
    inbox.write("b")
    await inbox.look()
    (delivery,) = await deliveries(inbox)
    assert (delivery.outcome, delivery.reason) == ("paused", "the job 'load' is paused: holiday")
    await resume(inbox.database, job_id, tenant=TENANT)
    await inbox.look(later_s=30)
    assert await inbox.started() == ["a", "b"]


async def test_a_place_that_cannot_be_read_is_shown_and_recovers(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(place=str(inbox.folder / "later"), settle=0)
    await inbox.look()
    shown = await inbox.trigger()
    assert shown.state == "failing" and shown.looked_at is None
    assert shown.last_error == f"cannot read {inbox.folder}/later: No such file or directory"
    assert shown.last_error_at == inbox.clock.now
    (reason,) = (await why_execution.job(inbox.database, "load", tenant=TENANT)).reasons
    assert reason.message == f"trigger inbox cannot read its place: {shown.last_error}"
    first = shown.last_error_at
    await inbox.look(later_s=30)
    assert (await inbox.trigger()).last_error_at == first, "since when, not how often"
    inbox.write("later/a")
    await inbox.look(later_s=30)
    shown = await inbox.trigger()
    assert (shown.state, shown.last_error, shown.last_error_at) == ("active", None, None)
    assert shown.looked_at == inbox.clock.now
    assert await inbox.started() == ["a"]


async def test_nothing_is_read_outside_of_the_roots_of_the_tenant(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(settle=0, existing="start")
    inbox.write("a")
    for roots in ([], [f"{inbox.folder}/deeper"], [f"other={inbox.folder}"], ["s3://bucket"]):
        inbox.roots = roots
        await inbox.look(later_s=30)
        shown = await inbox.trigger()
        assert shown.state == "failing" and "--watch-root" in str(shown.last_error), roots
    assert await inbox.executions() == []
    inbox.roots = [f"*={inbox.folder}"]
    await inbox.look(later_s=30)
    assert await inbox.started() == ["a"]


async def test_a_failure_of_one_trigger_does_not_keep_others_from_looking(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await inbox.job()
    await inbox.watch("bad", settle=0)
    await inbox.watch("good", settle=0)
    inbox.write("a")
    real = files.take

    async def broken(database: Database, watch: trigger_files.WatchRow, look: Any) -> int:
        if watch.trigger.name == "bad":
            raise RuntimeError("a bug")
        return await real(database, watch, look)

    monkeypatch.setattr("mainspring.duties.file_watch.take", broken)
    await inbox.look()
    (execution,) = await inbox.executions()
    assert execution.started_by is not None and execution.started_by.trigger == "good"
    assert "internal error" in str((await inbox.trigger("bad")).last_error)


async def test_another_place_or_pattern_begins_again(inbox: Inbox) -> None:
    await inbox.job()
    inbox.write("a.csv", modified_at=inbox.clock.now - OLD)
    inbox.write("sub/a.csv", modified_at=inbox.clock.now - OLD)
    await inbox.watch(settle=0, pattern="*.csv")
    await inbox.look()
    for change in ({"pattern": "**/*.csv"}, {"place": f"{inbox.folder}/sub"}):
        await definitions.replace(inbox.database, "inbox", inbox.spec(settle=0, **change), tenant=TENANT, by=BY)
        await inbox.look(later_s=30)
    assert await inbox.executions() == [], "what exists at the time of the edit is ignored"
    inbox.write("sub/b.csv")
    await inbox.look(later_s=30)
    assert await inbox.started() == ["b.csv"]


async def test_processes_that_look_at_once_start_one_execution(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(settle=0)
    for number in range(5):
        inbox.write(f"f{number}")
    leaders = [FileWatch(inbox.database, inbox.places, read_roots(inbox.roots)) for _ in range(4)]
    await asyncio.gather(*(leader.look_all() for leader in leaders))
    assert await inbox.started() == [f"f{number}" for number in range(5)]
    assert {d.repeats for d in await deliveries(inbox)} == {0}


async def test_a_stale_leader_starts_nothing_after_an_edit_or_pause(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the trigger and the folder, and decides after the trigger was paused, edited or deleted."""
    await inbox.job()
    real = decide

    async def slow(*args: Any) -> Any:
        await change()
        return await real(*args)

    monkeypatch.setattr(files, "decide", slow)

    async def paused() -> None:
        await definitions.pause(inbox.database, "inbox", "", tenant=TENANT, by=BY)

    async def edited() -> None:
        spec = inbox.spec(settle=0, when="false")
        await definitions.replace(inbox.database, "inbox", spec, tenant=TENANT, by=BY)

    async def deleted() -> None:
        await definitions.delete(inbox.database, "inbox", tenant=TENANT, by=BY)

    for change in (paused, edited, deleted):
        await inbox.watch(settle=0, existing="start")
        inbox.write("a")
        await inbox.look(later_s=1)
        assert await inbox.executions() == [], change.__name__
        if change is not deleted:
            await definitions.delete(inbox.database, "inbox", tenant=TENANT, by=BY)


async def test_a_started_file_is_remembered_while_it_exists_and_a_week_longer(inbox: Inbox) -> None:
    await inbox.job()
    await inbox.watch(settle=0, interval="1d", existing="start")
    inbox.write("stays")
    inbox.write("leaves")
    await inbox.look()
    (inbox.folder / "leaves").unlink()
    retention = Retention(inbox.database, leads=lambda: True, keep_history_s=1e9)
    for _ in range(7):
        await inbox.look(later_s=86_400)
        await retention.run_once()
    assert await known(inbox) == ["leaves", "stays"]
    for _ in range(3):
        await inbox.look(later_s=86_400)
        await retention.run_once()
    assert await known(inbox) == ["stays"]
    assert await deliveries(inbox) == [], "deliveries are kept for a week"
    await definitions.pause(inbox.database, "inbox", "", tenant=TENANT, by=BY)
    await inbox.clock.advance(days=30)
    await retention.run_once()
    await definitions.resume(inbox.database, "inbox", tenant=TENANT, by=BY)
    await inbox.look()
    assert len(await inbox.executions()) == 2, "a pause forgets nothing"


async def test_ledger_and_why_name_the_trigger_and_the_file(inbox: Inbox) -> None:
    await inbox.job()
    made = await inbox.watch(settle=0)
    inbox.write("sub.csv")
    await inbox.look()
    (execution,) = await inbox.executions()
    version = (await known_versions(inbox))["sub.csv"]
    expected = wire.StartedBy(
        trigger_id=made.trigger_id,
        trigger="inbox",
        kind="files",
        delivery=f"{inbox.folder}/sub.csv {version}",
        event="sub.csv",
    )
    assert execution.started_by == expected and str(expected) == "trigger inbox: file sub.csv"
    (entry,) = (await fires.ledger(inbox.database, "load", tenant=TENANT)).items
    assert (entry.execution_id, entry.started_by) == (execution.execution_id, expected)
    why = await why_execution.execution(inbox.database, execution.execution_id, tenant=TENANT)
    assert why.started_by == expected
    await definitions.delete(inbox.database, "inbox", tenant=TENANT, by=BY)
    (entry,) = (await fires.ledger(inbox.database, "load", tenant=TENANT)).items
    assert entry.started_by == expected, "it is kept without the trigger"


async def test_a_trigger_remembers_a_bounded_number_of_files(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_REMEMBERED", 2)
    await inbox.job()
    await inbox.watch(settle=0)
    for name in ("a", "b"):
        inbox.write(name)
        await inbox.look(later_s=30)
    inbox.write("c")
    await inbox.look(later_s=30)
    assert "2 files have matched within a week" in str((await inbox.trigger()).last_error)
    (inbox.folder / "c").unlink()
    inbox.write("a", "another version")
    await inbox.look(later_s=30)
    assert (await inbox.trigger()).last_error is None
    assert await inbox.started() == ["a", "a", "b"]


async def test_a_tenant_has_a_bounded_number_of_watches(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MAX_FILE_TRIGGERS", 1)
    await inbox.job()
    await inbox.watch("first")
    with pytest.raises(Conflict, match="1 of them for files"):
        await inbox.watch("second")


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
async def test_a_killed_process_neither_loses_nor_doubles(inbox: Inbox, moment: str) -> None:
    await inbox.job()
    await inbox.watch(settle=0)
    inbox.write("a")
    words = [inbox.database.dsn, str(inbox.folder), moment]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", STOPS, *words)
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    assert await inbox.started() == ([] if moment == "before the commit" else ["a"])
    for _ in range(2):
        await inbox.look(later_s=30)
    assert await inbox.started() == ["a"]


async def test_definitions_are_checked(inbox: Inbox) -> None:
    await inbox.job()
    for fields, pointer in (
        ({"place": "relative"}, "/source/place"),
        ({"interval": "1s"}, "/source/interval"),
        ({"pattern": "../*"}, "/source/pattern"),
        ({"params": {"x": "{{body.x}}"}}, "/params/x"),
    ):
        with pytest.raises(Invalid) as error:
            await inbox.watch(**fields)
        assert error.value.problems[0].pointer == pointer


async def deliveries(inbox: Inbox) -> list[wire.TriggerDelivery]:
    return (await views.deliveries(inbox.database, "inbox", tenant=TENANT)).items


async def known_versions(inbox: Inbox) -> dict[str, str]:
    async with inbox.database.connection() as connection:
        (row,) = await triggers.triggers_named(connection, tenant=TENANT, names=["inbox"])
        paths = ["stays", "leaves", "sub.csv"]
        found = await trigger_files.known_files(connection, tenant=TENANT, trigger_id=row.trigger_id, paths=paths)
    return {path: file.version for path, file in found.items()}


async def known(inbox: Inbox) -> list[str]:
    return sorted(await known_versions(inbox))
