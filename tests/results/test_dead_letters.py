"""What fails or is lost for good leaves one dead letter, in the transaction that ends it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.retry import RetryPolicy
from mainspring.duties.retention import Retention
from mainspring.store import dead_letters as store
from mainspring.store import doctor, fires
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import dead_letters as dead_letter_views
from tests.support.settling import TENANT, SettlingBench

pytestmark = pytest.mark.anyio

NO_RETRIES = RetryPolicy(max=0)


@pytest.fixture
def bench(fresh: Database) -> SettlingBench:
    return SettlingBench(fresh)


async def letters(bench: SettlingBench) -> list[wire.DeadLetter]:
    return (await dead_letter_views.list_dead_letters(bench.database, tenant=TENANT)).items


async def count(bench: SettlingBench) -> int:
    async with bench.database.connection() as connection:
        return await store.count_open(connection, tenant=TENANT)


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
async def test_the_last_failure_leaves_a_letter_with_everything_one_needs(
    bench: SettlingBench, virtual: VirtualClock, outcome: Any
) -> None:
    execution, session = await bench.started(retries=RetryPolicy(max=1, base="10s", jitter="none"))
    assert await bench.end(execution, session, "failed", exit_code=3, error="ValueError: row 17\n\nTraceback")
    assert await count(bench) == 0, "there is a retry left"
    await virtual.advance(seconds=10)
    async with bench.database.connection() as connection:
        await fires.promote_waiting(connection, shards=list(range(64)), limit=10)
    session = await bench.session()
    await bench.claim(session)
    assert await bench.end(execution, session, outcome, attempt=2, exit_code=4, error="ValueError: row 18")
    letter = await dead_letter_views.get(bench.database, execution, tenant=TENANT)
    assert letter.definition is not None and letter.definition.retries.max == 1
    assert [listed.dead_letter_id for listed in await letters(bench)] == [execution]
    found = await bench.look(execution)
    assert (letter.dead_letter_id, letter.state, letter.ended_as) == (execution, "open", outcome)
    assert (letter.job_id, letter.version, letter.error, letter.exit_code) == (
        found.job_id,
        1,
        "ValueError: row 18",
        4,
    )
    assert [(a.attempt, a.outcome, a.exit_code, a.worker) for a in letter.attempts] == [
        (1, "failed", 3, "w"),
        (2, outcome, 4, "w"),
    ]
    assert letter.attempts == found.attempts, "the copy says what the record says"
    assert (letter.fire_at, letter.created_at) == (found.fire_at, found.finished_at)


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
async def test_what_ends_well_or_on_purpose_leaves_none(bench: SettlingBench, outcome: Any) -> None:
    execution, session = await bench.started(retries=NO_RETRIES)
    assert await bench.end(execution, session, outcome)
    assert await letters(bench) == []


async def test_a_lost_at_most_once_and_a_poisonous_execution_leave_one_each(bench: SettlingBench) -> None:
    careful, session = await bench.started(delivery="at_most_once", retries=NO_RETRIES)
    await bench.end_session(session)
    poison, session = await bench.started(retries=RetryPolicy(max=9))
    for _ in range(2):
        await bench.end_session(session)
        session = await bench.session()
        assert len(await bench.claim(session)) == 1
    await bench.end_session(session)
    found = {letter.dead_letter_id: letter for letter in await letters(bench)}
    assert {i: letter.ended_as for i, letter in found.items()} == {careful: "lost", poison: "failed"}
    assert found[poison].what.startswith("poison: 3 workers")
    assert [a.outcome for a in found[poison].attempts] == ["lost"] * 3


async def test_the_failure_and_its_letter_are_written_together_or_not_at_all(bench: SettlingBench) -> None:
    """A letter that can't be written leaves the execution as it was, so its worker reports the same again."""
    execution, session = await bench.started(retries=NO_RETRIES)
    async with bench.database.connection() as connection:
        await connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END $$;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON dead_letters EXECUTE FUNCTION full_disk()"
        )
        with pytest.raises(asyncpg.DiskFullError):
            await bench.end(execution, session, "failed", error="no")
        found = await bench.look(execution)
        assert (found.state, found.attempts) == ("running", [])
        await connection.execute("DROP TRIGGER full_disk ON dead_letters")
    assert await bench.end(execution, session, "failed", error="no")
    assert not await bench.end(execution, session, "failed", error="no"), "the third time it is stale"
    assert ((await bench.look(execution)).state, await count(bench)) == ("failed", 1)


async def test_the_same_mistake_is_one_group_per_job(bench: SettlingBench) -> None:
    job, other = await bench.job(retries=NO_RETRIES), await bench.job(retries=NO_RETRIES)
    errors = {job: ["row 1 is bad", "row 2 is bad", "no route to host"], other: ["row 3 is bad"]}
    for job_id, texts in errors.items():
        for text in texts:
            execution = await bench.submit(job_id)
            session = await bench.session()
            await bench.claim(session)
            assert await bench.end(execution, session, "failed", error=text)
    page = await dead_letter_views.list_groups(bench.database, tenant=TENANT)
    found = {(g.job_id, g.what, g.count, g.exact) for g in page.items}
    assert found == {
        (job, "row 2 is bad", 2, True),
        (job, "no route to host", 1, True),
        (other, "row 3 is bad", 1, True),
    }
    walked: list[tuple[UUID, str]] = []
    cursor: str | None = None
    while True:
        part = await dead_letter_views.list_groups(bench.database, tenant=TENANT, cursor=cursor, limit=1)
        walked += [(g.job_id, g.fingerprint) for g in part.items]
        if (cursor := part.next_cursor) is None:
            break
    assert walked == sorted((g.job_id, g.fingerprint) for g in page.items)
    assert (await dead_letter_views.list_groups(bench.database, tenant=TENANT + 1)).items == []


async def test_letters_are_kept_as_long_as_was_said(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started(retries=NO_RETRIES)
    assert await bench.end(execution, session, "failed", error="no")
    retention = Retention(bench.database, leads=lambda: True, keep_dead_letters_s=14 * 86_400)
    await virtual.advance(days=13, hours=23)
    await retention.run_once()
    assert await count(bench) == 1
    await virtual.advance(hours=2)
    await retention.run_once()
    assert await count(bench) == 0


async def test_the_doctor_finds_a_failure_without_a_letter_and_a_letter_without_a_failure(bench: SettlingBench) -> None:
    execution, session = await bench.started(retries=NO_RETRIES)
    assert await bench.end(execution, session, "failed", error="no")
    title = doctor.CHECKS["invariant_i14"]
    async with bench.database.connection() as connection:
        assert (await doctor.examine(connection)).checks[title] == "ok"
        await connection.execute("UPDATE dead_letters SET dead_letter_id = gen_random_uuid()")
        offenders = [f.offender for f in (await doctor.examine(connection)).findings if f.check == title]
    assert len(offenders) == 2 and str(execution) in offenders
