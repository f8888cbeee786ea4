"""Lists by a filter: what fits, in order, page by page, and never more looked at than a bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.errors import Invalid, NotFound
from mainspring.domain.filter import ExecutionFilter, JobFilter
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.plugin import PluginTask
from mainspring.domain.task import HttpTask
from mainspring.intake import executions, jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.store import search as store
from mainspring.store.db import Database
from mainspring.store.queries import q
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import jobs as job_views
from mainspring.views import search

TENANT = 1
LAST = UUID(int=(1 << 128) - 1)


async def add(database: Database, name: str, **spec: Any) -> UUID:
    spec = dict[str, Any](task=NoopTask()) | spec
    return await jobs.create(database, JobSpec(name=name, **spec), tenant=TENANT, by="test")


async def names(database: Database, text: str) -> list[str]:
    return [job.name for job in (await search.jobs(database, text, tenant=TENANT)).items]


async def test_jobs_by_every_field(fresh: Database) -> None:
    await add(fresh, "nightly-backup", queue="long", labels={"zone": "eu"})
    await add(fresh, "nightly-report", task=HttpTask(url="https://example.org"), metadata={"team": "finance"})
    await add(fresh, "Hourly", metadata={"labels": {"team": "finance"}, "zone": 5})
    await add(fresh, "asks", task=PluginTask("sql"))
    await jobs.pause(fresh, await add(fresh, "rests"), tenant=TENANT, reason="")
    gone = await add(fresh, "nightly-gone")
    await jobs.delete(fresh, gone, tenant=TENANT, by="test")
    for text, found in (
        ("", ["asks", "Hourly", "nightly-backup", "nightly-report", "rests"]),
        ("night", ["nightly-backup", "nightly-report"]),
        ("NIGHT report", ["nightly-report"]),
        ("name:nightly-b,rest", ["nightly-backup", "rests"]),
        ("state:paused", ["rests"]),
        ("state:active,paused night", ["nightly-backup", "nightly-report"]),
        ("queue:long", ["nightly-backup"]),
        ("kind:http,sql", ["asks", "nightly-report"]),
        ("label:team=finance", ["Hourly", "nightly-report"]),
        ("label:zone=eu", ["nightly-backup"]),
        ("label:team=finance label:zone=eu", []),
        ("state:active hourly", ["Hourly"]),
    ):
        assert sorted(await names(fresh, text)) == sorted(found), text


async def walk(fetch: Callable[[str | None], Awaitable[wire.Page[Any]]]) -> list[Any]:
    items: list[Any] = []
    cursor: str | None = None
    while True:
        page = await fetch(cursor)
        items += page.items
        if (cursor := page.next_cursor) is None:
            return items


async def test_pages_of_jobs_are_whole_and_in_order(fresh: Database) -> None:
    for number in range(25):
        await add(fresh, f"job-{number:02}", queue="odd" if number % 2 else "even")
    found = await walk(lambda cursor: search.jobs(fresh, "queue:odd", tenant=TENANT, cursor=cursor, limit=5))
    assert [job.name for job in found] == [f"job-{n:02}" for n in range(25) if n % 2]


async def test_a_look_at_jobs_has_a_bound_and_goes_on_from_there(fresh: Database) -> None:
    for number in range(10):
        await add(fresh, f"job-{number}")
    async with fresh.connection() as connection:
        found = await store.search_jobs(
            connection, JobFilter(texts=("9",)), tenant=TENANT, after="", limit=5, scan_limit=4
        )
        assert (found.ids, found.floor) == ([], "job-3")
        found = await store.search_jobs(
            connection, JobFilter(texts=("9",)), tenant=TENANT, after="job-7", limit=5, scan_limit=4
        )
        assert (len(found.ids), found.floor) == (1, None)


async def test_executions_by_every_field(fresh: Database, virtual: VirtualClock) -> None:
    submitter = Submitter(fresh)
    report = await add(fresh, "report", queue="long", labels={"team": "finance"})
    other = await add(fresh, "other")
    made = {}
    for hour, job_id in enumerate([report, other, report, other]):
        made[hour] = await submitter.submit(Submission(TENANT, "test", job_id))
        await virtual.advance(hours=1)
    await executions.cancel(fresh, made[0], tenant=TENANT, by="test", reason="")
    for text, found in (
        ("", [3, 2, 1, 0]),
        ("state:cancelled", [0]),
        ("state:queued", [3, 2, 1]),
        ("job:report", [2, 0]),
        (f"job:{other}", [3, 1]),
        ("job:report,other state:queued", [3, 2, 1]),
        ("queue:long", [2, 0]),
        ("since:150m", [3, 2]),
        ("since:4h until:2h", [1, 0]),
        (f"since:{START.date()} until:1970-01-01", []),
        ("ended:5m state:cancelled", [0]),
        ("ended:5m", [0]),
        ("ended:5m job:report", [0]),
        ("trigger:manual queue:short", [3, 1]),
        ("trigger:fire", []),
        ("label:team=finance", [2, 0]),
        ("repo state:queued", [2]),
        ("label:team=finance job:other", []),
        ("nobody", []),
    ):
        page = await search.find_executions(fresh, text, tenant=TENANT)
        assert [e.execution_id for e in page.items] == [made[n] for n in found], text
        walked = await walk(lambda c, text=text: search.find_executions(fresh, text, tenant=TENANT, cursor=c, limit=1))  # type: ignore[misc]
        assert [e.execution_id for e in walked] == [made[n] for n in found], text
    with pytest.raises(NotFound):
        await search.find_executions(fresh, "job:nobody", tenant=TENANT)
    with pytest.raises(Invalid):
        await search.find_executions(fresh, "", tenant=TENANT, cursor="x")


async def test_a_look_at_executions_has_a_bound_and_goes_on_from_there(fresh: Database, virtual: VirtualClock) -> None:
    submitter = Submitter(fresh)
    busy, quiet = await add(fresh, "busy"), await add(fresh, "quiet")
    made = []
    for number in range(12):
        made.append(await submitter.submit(Submission(TENANT, "test", quiet if number % 4 == 0 else busy)))
        await virtual.advance(seconds=1)
    wanted = ExecutionFilter(states=("succeeded",))
    async with fresh.connection() as connection:
        one = await store.search_executions(connection, wanted, tenant=TENANT, before=LAST, limit=5, scan_limit=4)
        assert (one.ids, one.floor) == ([], made[8])
        # The busy job is left off at made[9]; what the quiet one has before that comes with the next look.
        some = await store.search_executions_of_jobs(
            connection, ExecutionFilter(), tenant=TENANT, before=LAST, limit=2, job_ids=[busy, quiet], scan_limit=4
        )
        assert (some.ids, some.floor) == ([made[11], made[10]], made[10])


async def test_what_did_not_succeed_is_found_without_looking_at_the_rest(
    fresh: Database, virtual: VirtualClock
) -> None:
    submitter, job_id = Submitter(fresh), await add(fresh, "a")
    made = []
    for _ in range(9):
        made.append(await submitter.submit(Submission(TENANT, "test", job_id)))
        await virtual.advance(seconds=1)
    async with fresh.connection() as connection:
        await connection.execute(
            """
            WITH gone AS (DELETE FROM executions RETURNING *)
            INSERT INTO history (execution_id, job_id, tenant_id, version, priority, attempt, state, trigger, queue,
                                 fire_at, due_at, finished_at)
            SELECT execution_id, job_id, tenant_id, version, priority, 1,
                   (ARRAY['cancelled', 'succeeded', 'lost'])[1 + extract(epoch FROM fire_at - $1)::int % 3],
                   CASE WHEN execution_id = $2 THEN 'fire' ELSE trigger END, queue, fire_at, due_at, db_now()
            FROM gone
            """,
            START,
            made[0],
        )

    async def found(text: str, limit: int) -> list[int]:
        walked = await walk(lambda c: search.find_executions(fresh, text, tenant=TENANT, cursor=c, limit=limit))
        return [made.index(e.execution_id) for e in walked]

    for limit in (1, 2, 3, 50):
        assert await found("state:cancelled", limit) == [6, 3, 0]
        assert await found("state:lost,cancelled,failed", limit) == [8, 6, 5, 3, 2, 0]
        assert await found("state:lost,succeeded", limit) == [8, 7, 5, 4, 2, 1]
        assert await found("state:cancelled trigger:fire", limit) == [0]
        assert await found("state:lost since:5s", limit) == [8, 5]
    wanted = ExecutionFilter(states=("cancelled", "lost"), triggers=("fire",))
    async with fresh.connection() as connection:
        some = await store.search_executions(connection, wanted, tenant=TENANT, before=LAST, limit=5, scan_limit=2)
    assert (some.ids, some.floor) == ([], made[5])  # of the lost two were looked at, and of the cancelled as well


async def test_too_many_jobs_to_look_into_are_told(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_JOBS", 2)
    for number in range(3):
        await add(fresh, f"job-{number}")
    with pytest.raises(Invalid, match="more than 2 jobs match"):
        await search.find_executions(fresh, "job", tenant=TENANT)


async def test_nothing_of_another_tenant_is_found(fresh: Database) -> None:
    job_id = await add(fresh, "mine")
    await Submitter(fresh).submit(Submission(TENANT, "test", job_id))
    assert (await search.jobs(fresh, "mine", tenant=2)).items == []
    assert (await search.find_executions(fresh, "state:queued", tenant=2)).items == []
    with pytest.raises(NotFound):
        await search.find_executions(fresh, f"job:{job_id}", tenant=2)


async def test_what_was_cancelled_before_its_time_is_found(fresh: Database, virtual: VirtualClock) -> None:
    job_id = await add(fresh, "later")
    at = START + timedelta(days=400)
    made = await Submitter(fresh).submit(Submission(TENANT, "test", job_id, at))
    await executions.cancel(fresh, made, tenant=TENANT, by="test", reason="")
    page = await search.find_executions(fresh, "state:cancelled", tenant=TENANT)
    assert [e.execution_id for e in page.items] == [made]


async def test_names_that_begin_alike_are_a_range(fresh: Database) -> None:
    for name in ("ml-b", "mla", "ml-a", "ml_a", "ML-a", "m", "ml-", "n", "web-1"):
        await add(fresh, name)
    for prefix, found in (("ml-", ["ml-", "ml-a", "ml-b"]), ("m", ["m", "ml-", "ml-a", "ml-b", "ml_a", "mla"])):
        page = await job_views.list_jobs(fresh, tenant=TENANT, prefix=prefix)
        assert [job.name for job in page.items] == found
        assert await names(fresh, f"name:{prefix}") == found
    # One begins as the other does: what only the shorter one matches is not beyond the range of both.
    assert await names(fresh, "name:m,ml-") == ["m", "ml-", "ml-a", "ml-b", "ml_a", "mla"]
    assert await names(fresh, "name:web,ML") == ["ML-a", "web-1"]
    seen, cursor = list[str](), None
    while True:
        page = await job_views.list_jobs(fresh, tenant=TENANT, prefix="ml", cursor=cursor, limit=2)
        seen += [job.name for job in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == ["ml-", "ml-a", "ml-b", "ml_a", "mla"]
    async with fresh.transaction() as connection:
        await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        plan = await connection.fetch(
            "EXPLAIN "
            + q("list_jobs")
            .replace("$1", "1")
            .replace("$2", "''")
            .replace("$3", "10")
            .replace("$4", "'ml-'")
            .replace("$5", "'ml.'")
        )
    text = "\n".join(row[0] for row in plan)
    assert "jobs_prefix" in text and "Sort" not in text
