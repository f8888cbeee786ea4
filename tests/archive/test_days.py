"""Days of history and output move to the archive and back, and are read from there."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from mainspring import wire
from mainspring.archive import read
from mainspring.archive.encode import Damaged
from mainspring.archive.read import ArchiveReader
from mainspring.archive.restore import restore_day, verify_day
from mainspring.archive.write import ArchiveWriter, NotArchived
from mainspring.backends.archive_places import ArchivePlace, FolderPlace, open_archive_place
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.store import archives
from mainspring.store.archives import CONTENTS
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import executions as execution_views
from mainspring.views import logs as log_views
from tests.support.past_days import OTHER_TENANT, contents_of, insert_days

pytestmark = pytest.mark.anyio

AFTER_S = 30 * 86_400.0
EMPTY: dict[str, list[str]] = {"history": [], "log_chunks": [], "attempts": []}


@pytest.fixture
def place(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "archive")


async def archive_all(database: Database, place: ArchivePlace) -> list[date]:
    writer = ArchiveWriter(database, place)
    return [day for parent in CONTENTS for day in await writer.archive_all(parent, after_s=AFTER_S)]


async def test_restored_rows_are_those_that_were_archived(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    past = await insert_days(fresh)
    before = await contents_of(fresh)
    assert {table: len(rows) > 100 or table == "attempts" for table, rows in before.items()} == dict.fromkeys(
        before, True
    )
    assert await archive_all(fresh, place) == past.days * 2
    assert await contents_of(fresh) == EMPTY
    for day in past.days:
        for parent in CONTENTS:
            assert await verify_day(fresh, place, parent, day)
            await restore_day(fresh, place, parent, day, keep_s=86_400.0)
    assert await contents_of(fresh) == before
    assert await archive_all(fresh, place) == [], "restored days stay as long as asked for"
    await virtual.advance(days=2)
    assert await archive_all(fresh, place) == past.days * 2
    assert await contents_of(fresh) == EMPTY


def rows_of(query: str) -> list[tuple[Any, ...]]:
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


async def pages(database: Database, *, limit: int, **wanted: object) -> list[wire.Execution]:
    found, cursor = list[wire.Execution](), None
    while True:
        page = await execution_views.list_executions(database, tenant=1, limit=limit, cursor=cursor, **wanted)  # type: ignore[arg-type]
        assert len(page.items) <= limit
        found += page.items
        if (cursor := page.next_cursor) is None:
            return found


async def test_pages_and_executions_are_the_same_from_the_archive(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    await insert_days(fresh)
    job = "past-1"
    before = {
        "job": await pages(fresh, limit=50, job=job),
        "all": await pages(fresh, limit=50),
        "failed": await pages(fresh, limit=7, job=job, states=["failed", "skipped"]),
    }
    shown = [*[e.execution_id for e in before["all"] if e.state == "failed"][:3], before["all"][-1].execution_id]
    single = [await execution_views.get(fresh, one, tenant=1) for one in shown]
    logs = [await log_views.read_logs(fresh, one, tenant=1) for one in shown]
    tails = [await log_views.read_logs_before(fresh, one, tenant=1) for one in shown]
    assert single[0].attempts and logs[0].chunks and len(before["job"]) == 180
    writer = ArchiveWriter(fresh, place)
    await writer.archive_all("history", after_s=AFTER_S + 86_400.0 * 29)  # some days, then all
    fresh.archive = ArchiveReader(place)
    for left in (True, False):
        after = {
            "job": await pages(fresh, limit=50, job=job),
            "all": await pages(fresh, limit=50),
            "failed": await pages(fresh, limit=7, job=job, states=["failed", "skipped"]),
        }
        assert after == before
        assert [await execution_views.get(fresh, one, tenant=1) for one in shown] == single
        assert [await log_views.read_logs(fresh, one, tenant=1) for one in shown] == logs
        assert [await log_views.read_logs_before(fresh, one, tenant=1) for one in shown] == tails
        assert bool(await archive_all(fresh, place)) is left
    with pytest.raises(NotFound):
        await execution_views.get(fresh, UUID(int=shown[0].int + 1), tenant=1)


async def test_a_tenant_has_files_of_its_own(fresh: Database, virtual: VirtualClock, place: FolderPlace) -> None:
    past = await insert_days(fresh)
    fresh.archive = ArchiveReader(place)
    mine = (await pages(fresh, limit=10))[0].execution_id
    await archive_all(fresh, place)
    with pytest.raises(NotFound):
        await execution_views.get(fresh, mine, tenant=OTHER_TENANT)
    theirs = await execution_views.list_executions(fresh, tenant=OTHER_TENANT, limit=500)
    assert len(theirs.items) == 180 and {e.job_id for e in theirs.items} == {past.other}
    names = list(place.names("history"))
    assert len(names) == 6
    for name in names:
        tenants = rows_of(f"SELECT DISTINCT tenant_id FROM '{place._root / name}'")
        assert f"tenant={tenants[0][0]}/" in name and len(tenants) == 1
    async with fresh.connection() as connection:
        await connection.execute("UPDATE tenants SET deleted_at = db_now() WHERE tenant_id = $1", OTHER_TENANT)
    await ArchiveWriter(fresh, place).forget(keep_s=None)
    left = [name for content in ("history", "attempts", "log_chunks") for name in place.names(content)]
    assert left and not [name for name in left if f"tenant={OTHER_TENANT}/" in name]
    assert (await execution_views.get(fresh, mine, tenant=1)).execution_id == mine


async def test_duckdb_reads_the_archive(fresh: Database, virtual: VirtualClock, place: FolderPlace) -> None:
    await insert_days(fresh)
    async with fresh.connection() as connection:
        count = await connection.fetchval("SELECT count(*) FROM history WHERE state = 'failed'")
        last = await connection.fetchval("SELECT max(finished_at) FROM history")
    await archive_all(fresh, place)
    source = f"read_parquet('{place._root}/history/*/*/*.parquet', hive_partitioning = true)"
    failed, finished = rows_of(
        f"SELECT count(*) FILTER (WHERE state = 'failed'), epoch_us(max(finished_at)) FROM {source}"
    )[0]
    assert failed == count and finished == round(last.timestamp() * 1e6)
    assert rows_of(f"SELECT count(DISTINCT day), count(DISTINCT job) FROM {source}") == [(3, 3)]


async def test_the_archive_forgets_after_its_retention(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    past = await insert_days(fresh)
    await archive_all(fresh, place)
    orphan = place._root / f"history/day={past.days[0]}/tenant=1/left.parquet"
    orphan.write_bytes(b"x")
    await ArchiveWriter(fresh, place).forget(keep_s=59 * 86_400.0 - 1)
    async with fresh.connection() as connection:
        kept = {day.day for day in await archives.archived_days(connection)}
    assert past.days[0] not in kept and past.days[-1] in kept
    assert not list(place.names(f"history/day={past.days[0]}"))
    assert list(place.names(f"history/day={past.days[-1]}"))


async def test_rows_that_are_added_after_the_copy_are_not_lost(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    past = await insert_days(fresh, days=1)
    before = await contents_of(fresh)
    added = (
        "INSERT INTO log_chunks (execution_id, attempt, seq, tenant_id, stream, data, started_at)"
        " SELECT execution_id, attempt, 99, tenant_id, stream, data, started_at FROM log_chunks LIMIT 1"
    )

    writer = ArchiveWriter(fresh, place)
    recorded = archives.record_files

    async def add_then_record(connection, **more):
        done = await recorded(connection, **more)
        await connection.execute(added)
        return done

    archives.record_files = add_then_record
    try:
        with pytest.raises(NotArchived):
            await writer.archive_all("log_chunks", after_s=AFTER_S)
    finally:
        archives.record_files = recorded
    assert len((await contents_of(fresh))["log_chunks"]) == len(before["log_chunks"]) + 1
    assert await writer.archive_all("log_chunks", after_s=AFTER_S) == past.days
    async with fresh.connection() as connection:
        files = await archives.files_of_day(connection, parent="log_chunks", day=past.days[0])
    assert sum(file.rows for file in files) == len(before["log_chunks"]) + 1
    assert len(list(place.names("log_chunks"))) == len(files), "files of the first attempt are deleted"


class DamagingPlace(FolderPlace):
    """Flips a bit of each file while it is stored, and says nothing."""

    def store(self, name: str, file: Path) -> None:
        super().store(name, file)
        path = self._root / name
        data = path.read_bytes()
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])


async def test_a_day_whose_file_arrives_damaged_stays_in_the_database(
    fresh: Database, virtual: VirtualClock, tmp_path: Path
) -> None:
    past = await insert_days(fresh, days=1)
    before = await contents_of(fresh)
    with pytest.raises(Damaged, match="SHA-256"):
        await archive_all(fresh, DamagingPlace(tmp_path / "archive"))
    assert await contents_of(fresh) == before, "no partition is dropped before its files are verified"
    assert await archive_all(fresh, FolderPlace(tmp_path / "archive")) == past.days * 2, (
        "the next round writes it again"
    )
    assert await contents_of(fresh) == EMPTY


async def test_output_of_an_attempt_that_still_runs_stays(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    past = await insert_days(fresh, days=2)
    async with fresh.connection() as connection:
        await connection.execute(
            "INSERT INTO executions (execution_id, job_id, tenant_id, version, shard, state, trigger, queue, priority,"
            " rank, attempt, fire_at, due_at, queued_at, started_at, session_id, line_id)"
            " SELECT gen_random_uuid(), job_id, 1, 1, shard, 'running', 'manual', 'short', 5, 0, 1, $2, $2, $2, $2,"
            " gen_random_uuid(), line_id FROM jobs WHERE job_id = $1",
            past.jobs[0],
            datetime(past.days[0].year, past.days[0].month, past.days[0].day, 12, tzinfo=UTC),
        )
    assert await ArchiveWriter(fresh, place).archive_all("log_chunks", after_s=AFTER_S) == past.days[1:]


async def test_damage_is_found_and_never_restored(fresh: Database, virtual: VirtualClock, place: FolderPlace) -> None:
    past = await insert_days(fresh, days=1)
    await archive_all(fresh, place)
    name = next(iter(place.names("history")))
    path = place._root / name
    good = path.read_bytes()
    path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    with pytest.raises(Damaged, match="SHA-256"):
        await verify_day(fresh, place, "history", past.days[0])
    with pytest.raises(Damaged):
        await restore_day(fresh, place, "history", past.days[0], keep_s=86_400.0)
    assert (await contents_of(fresh))["history"] == []
    path.write_bytes(good)
    assert await restore_day(fresh, place, "history", past.days[0], keep_s=86_400.0) == 180


async def test_a_long_search_goes_on_with_the_next_page(
    fresh: Database, virtual: VirtualClock, place: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert_days(fresh, days=4)
    before = await pages(fresh, limit=20, job="past-0", states=["failed"])
    await archive_all(fresh, place)
    fresh.archive = ArchiveReader(place)
    monkeypatch.setattr(read, "READ_BYTES", 20_000)
    first = await execution_views.list_executions(fresh, tenant=1, limit=20, job="past-0", states=["failed"])
    assert first.next_cursor is not None and len(first.items) < len(before)
    assert await pages(fresh, limit=20, job="past-0", states=["failed"]) == before


async def test_an_archive_that_is_away_is_an_error_and_not_an_empty_page(
    fresh: Database, virtual: VirtualClock, place: FolderPlace
) -> None:
    await insert_days(fresh, days=1)
    found = (await pages(fresh, limit=10))[0].execution_id
    await archive_all(fresh, place)
    place._root.rename(place._root.with_name("away"))
    fresh.archive = ArchiveReader(place)
    for _ in range(2):
        with pytest.raises(Unavailable, match="missing"):
            await execution_views.get(fresh, found, tenant=1)
        with pytest.raises(Unavailable, match="missing"):
            await execution_views.list_executions(fresh, tenant=1)


async def test_every_column_is_archived(fresh: Database) -> None:
    """A migration that adds a column must add it to the copy, the file and the restore."""
    from mainspring.archive.columns import COLUMNS

    async with fresh.connection() as connection:
        for content, columns in COLUMNS.items():
            rows = await connection.fetch(
                "SELECT attname FROM pg_attribute"
                " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
                content,
            )
            assert {r["attname"] for r in rows} == {name for name, _ in columns.stored}


def test_open_archive_place_opens_folders_and_stores(tmp_path: Path) -> None:
    assert isinstance(open_archive_place(str(tmp_path)), FolderPlace)
