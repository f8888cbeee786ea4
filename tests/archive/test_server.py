"""The archive of a real server whose roles own nothing, in a folder and in an S3-compatible store; its commands."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import obstore
import pytest
from obstore.store import from_url

from mainspring.backends.archive_places import open_archive_place
from mainspring.client import AsyncClient
from mainspring.domain.errors import NotFound
from mainspring.duties.archive import ArchiveDuty
from mainspring.store import archives
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.conftest import Cluster, started
from tests.support.database_roles import server_urls
from tests.support.object_store_server import ObjectStoreServer
from tests.support.past_days import OTHER_TENANT, contents_of, insert_days
from tests.support.snippets import snippets
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

PAGE = "docs/how-to/archive.md"


@pytest.fixture
async def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a folder in a bucket of SeaweedFS."""
    server = ObjectStoreServer(tmp_path / "weed")
    await server.start()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    await obstore.put_async(from_url("s3://archive/mainspring"), "other", b"the first object creates the bucket")
    yield "s3://archive/mainspring"
    server.kill()


async def archived(cluster: Cluster) -> None:
    """Until the leader has archived all days that are old enough."""
    async with asyncio.timeout(60):
        while True:
            async with cluster.database.connection() as connection:
                days = await archives.archived_days(connection)
                if [day.state for day in days] == ["dropped"] * 6:
                    return
                await connection.execute("SELECT pg_sleep(0.1)")


async def check_server(database: Database, place: str) -> None:
    past = await insert_days(database, per_job=10)
    before = await contents_of(database)
    urls = {"database_url": database.dsn, **server_urls(database.dsn)}
    async with started(database.dsn, **{**urls, "archive_url": place}) as cluster, cluster.client() as client:
        await archived(cluster)
        found = [e async for e in executions_of(client, "past-0")]
        assert len(found) == 30 and len({e for e, _ in found}) == 30
        failed = next(e for e, state in found if state == "failed")
        execution = await client.execution(failed)
        assert len(execution.attempts) == 2 and execution.worker is None
        assert (await client.logs(failed)).chunks
        async with cluster.database.of(OTHER_TENANT).connection() as connection:
            rows = await connection.fetch("SELECT DISTINCT tenant_id FROM archives")
            assert [r["tenant_id"] for r in rows] == [OTHER_TENANT], "row-level security covers the catalogue"
    opened = open_archive_place(place)
    names = [name for content in ("history", "attempts", "log_chunks") for name in opened.names(content)]
    async with database.connection() as connection:
        files = [
            f.name
            for day in past.days
            for p in CONTENTS
            for f in await archives.files_of_day(connection, parent=p, day=day)
        ]
    assert sorted(names) == sorted(files)
    from mainspring.archive.restore import restore_day

    for day in past.days:
        for parent in CONTENTS:
            await restore_day(database, opened, parent, day, keep_s=86_400.0)
    assert await contents_of(database) == before


async def executions_of(client: AsyncClient, job: str) -> AsyncIterator[tuple[str, str]]:
    cursor: str | None = None
    while True:
        page = await client.executions(job=job, limit=7, cursor=cursor)
        for e in page.items:
            yield str(e.execution_id), e.state
        if (cursor := page.next_cursor) is None:
            return


async def test_a_server_archives_into_a_folder_and_reads_from_it(fresh: Database, tmp_path: Path) -> None:
    await check_server(fresh, str(tmp_path / "archive"))


async def test_a_server_archives_into_an_object_store_and_reads_from_it(fresh: Database, s3: str) -> None:
    await check_server(fresh, s3)


async def test_a_day_that_cannot_be_stored_stays_and_is_reported(
    fresh: Database, virtual: VirtualClock, tmp_path: Path
) -> None:
    await insert_days(fresh, days=1, per_job=5)
    before = await contents_of(fresh)
    (tmp_path / "archive").write_text("a file, not a folder")
    place = open_archive_place(str(tmp_path / "archive"))
    duty = ArchiveDuty(fresh.dsn, place, leads=lambda: True, after_s=30 * 86_400.0, keep_s=None)
    await duty._database.open()
    with pytest.raises(OSError):
        await duty.run_once()
    await duty.stop()
    assert await contents_of(fresh) == before
    from mainspring.store import doctor

    async with fresh.connection() as connection:
        notes = (await doctor.examine(connection)).notes
    assert any("could not be archived and stays in the database" in note for note in notes)


async def test_the_commands_of_the_how_to(fresh: Database, virtual: VirtualClock, tmp_path: Path) -> None:
    """The blocks of the page that need old days, on a database that has some."""
    past = await insert_days(fresh, days=2, per_job=10)
    before = await contents_of(fresh)
    blocks = [b for b in snippets(PAGE, (ROOT / PAGE).read_text()) if "past days" in (b.skip or "")]
    assert blocks
    script = re.sub(r"\d{4}-\d\d-\d\d", str(past.days[0]), "\n".join(block.text for block in blocks))
    program = ROOT / ".venv/bin"
    child = await asyncio.create_subprocess_exec(
        "bash",
        "-ec",
        script,
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{program}:{os.environ['PATH']}",
            "MAINSPRING_DATABASE_URL": fresh.dsn,
            "MAINSPRING_ARCHIVE_URL": "archive",
        },
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    text = out.decode()
    assert child.returncode == 0, text
    assert f"✔ {past.days[0]} history: 30 rows restored" in text and "dropped" in text and "succeeded" in text
    assert [row for row in before["history"] if str(past.days[0]) in row] == [
        row for row in (await contents_of(fresh))["history"] if str(past.days[0]) in row
    ]


async def test_a_day_that_is_not_archived_is_an_error(fresh: Database, tmp_path: Path) -> None:
    from mainspring.cli.archive import _parents

    with pytest.raises(NotFound, match="not in the archive"):
        await _parents(fresh, (await insert_days(fresh, days=1, per_job=2)).days[0])
