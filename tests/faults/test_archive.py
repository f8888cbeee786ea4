"""The leader is killed, or paused, at each step of archiving a day: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.archive.read import ArchiveReader
from mainspring.archive.restore import restore_day
from mainspring.archive.write import ArchiveWriter
from mainspring.backends.archive_places import FolderPlace
from mainspring.store import archives
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from tests.support import archive_program
from tests.support.archive_program import AFTER_S
from tests.support.past_days import contents_of, insert_days

pytestmark = [pytest.mark.anyio, pytest.mark.fault]

EMPTY: dict[str, list[str]] = {"history": [], "log_chunks": [], "attempts": []}
SHORT = [("copied", 2), ("stored", 1), ("verified", 2), ("recorded", 1)]
LONG = [("began", 1), ("copied", 1), ("stored", 3), ("dropped", 1), ("began", 3), ("stored", 7), ("recorded", 3)]
STEPS = SHORT + (LONG if os.environ.get("MAINSPRING_LONG") else [])


async def ids(database: Database) -> list[str]:
    """What a user sees of all executions of the first tenant, page by page."""
    found, cursor = list[str](), None
    while True:
        page = await execution_views.list_executions(database, tenant=1, limit=100, cursor=cursor)
        found += [f"{e.execution_id} {e.state}" for e in page.items]
        if (cursor := page.next_cursor) is None:
            return found


@pytest.mark.parametrize(("step", "count"), STEPS)
async def test_a_killed_leader_loses_and_doubles_nothing(
    step: str, count: int, fresh: Database, virtual: VirtualClock, tmp_path: Path
) -> None:
    past = await insert_days(fresh, days=2, per_job=20)
    before, seen = await contents_of(fresh), await ids(fresh)
    place = FolderPlace(tmp_path / "archive")
    program = [sys.executable, archive_program.__file__, fresh.dsn, str(tmp_path / "archive"), step, str(count)]
    child = await asyncio.create_subprocess_exec(*program)
    assert await child.wait() == -signal.SIGKILL
    fresh.archive = ArchiveReader(place)
    assert await ids(fresh) == seen, "after the kill"
    writer = ArchiveWriter(fresh, place)
    for parent in CONTENTS:
        await writer.archive_all(parent, after_s=AFTER_S)
    assert await contents_of(fresh) == EMPTY
    assert await ids(fresh) == seen, "after the successor"
    async with fresh.connection() as connection:
        files = [
            file.name
            for day in past.days
            for parent in CONTENTS
            for file in await archives.files_of_day(connection, parent=parent, day=day)
        ]
    stored = [name for content in ("history", "attempts", "log_chunks") for name in place.names(content)]
    assert sorted(files) == sorted(stored), "no file is left over"
    for day in past.days:
        for parent in CONTENTS:
            await restore_day(fresh, place, parent, day, keep_s=86_400.0)
    assert await contents_of(fresh) == before


async def interrupted(database: Database, place: FolderPlace, at: str, meanwhile: Callable[[], None]) -> list[object]:
    """Archive history; at the first such step call `meanwhile` in its thread."""
    todo = [meanwhile]

    def step(name: str) -> None:
        if name == at and todo:
            todo.pop()()

    return list(await ArchiveWriter(database, place, step=step).archive_all("history", after_s=AFTER_S))


@pytest.mark.parametrize("at", ["copied", "verified", "recorded"])
async def test_a_leader_that_was_paused_changes_nothing_any_more(
    at: str, fresh: Database, virtual: VirtualClock, tmp_path: Path
) -> None:
    """Its successor, a process of its own, has archived the day when it goes on."""
    await insert_days(fresh, days=1, per_job=20)
    before, seen = await contents_of(fresh), await ids(fresh)
    folder = tmp_path / "archive"
    place = FolderPlace(folder)

    def successor() -> None:
        program = [sys.executable, archive_program.__file__, fresh.dsn, str(folder), "never", "1"]
        subprocess.run(program, check=True, timeout=60)

    await interrupted(fresh, place, at, successor)
    fresh.archive = ArchiveReader(place)
    assert await ids(fresh) == seen
    assert len((await contents_of(fresh))["history"]) in (0, len(before["history"]))
    await ArchiveWriter(fresh, place).archive_all("history", after_s=AFTER_S)
    assert await ids(fresh) == seen and (await contents_of(fresh))["history"] == []
