"""The quota of executions that have not started, checked by the statement that inserts them."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from mainspring.domain.errors import Forbidden
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.principal import Principal
from mainspring.intake import jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.db import Database
from mainspring.store.queries import q
from tests.support.processes import until_async
from tests.support.statements import listen

pytestmark = [pytest.mark.anyio, pytest.mark.requirement(128)]

WAITING = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
COUNT = "SELECT count(*) FROM executions WHERE tenant_id = $1"


async def prepared(database: Database, *, most: int) -> tuple[int, Submission]:
    """A tenant with this quota, and a submission of one of its jobs."""
    async with database.connection() as connection:
        tenant = await connection.fetchval(
            "INSERT INTO tenants (name, max_queued) VALUES ($1, $2) RETURNING tenant_id", f"t-{uuid4()}", most
        )
    job_id = await jobs.create(database, JobSpec(name="job", task=NoopTask()), tenant=tenant, by="test")
    by = Principal("caller", uuid4(), queue_is_limited=True)
    return tenant, Submission(tenant, by, job_id, keyed=False)


async def test_processes_take_turns_at_the_last_place(fresh: Database) -> None:
    """The second waits until the first has committed, and then sees its execution."""
    tenant, submission = await prepared(fresh, most=2)
    await Submitter(fresh).submit(submission)
    async with Database(fresh.dsn, size=4) as other:
        async with fresh.transaction() as first:
            assert await first.fetchval("SELECT has_queue_room($1, 1)", tenant)
            second = asyncio.create_task(Submitter(other).submit(submission))

            async def waits() -> bool:
                async with fresh.connection() as connection:
                    return bool(await connection.fetchval(WAITING))

            await until_async("the second process to wait", waits, within_s=30)
            await first.execute(
                "INSERT INTO executions SELECT (jsonb_populate_record(e, jsonb_build_object('execution_id',"
                " gen_random_uuid()))).* FROM executions e WHERE tenant_id = $1",
                tenant,
            )
        with pytest.raises(Forbidden, match="max_queued allows 2 executions"):
            await second
    async with fresh.connection() as connection:
        assert await connection.fetchval(COUNT, tenant) == 2


async def test_of_many_processes_as_many_submit_as_fit(fresh: Database) -> None:
    tenant, submission = await prepared(fresh, most=25)
    async with Database(fresh.dsn, size=4) as second, Database(fresh.dsn, size=4) as third:
        submitters = [Submitter(database) for database in (fresh, second, third)]
        answers = await asyncio.gather(
            *(submitter.submit(submission) for submitter in submitters * 20), return_exceptions=True
        )
    assert sum(isinstance(answer, Forbidden) for answer in answers) == 35
    async with fresh.connection() as connection:
        assert await connection.fetchval(COUNT, tenant) == 25


async def test_a_key_that_is_known_needs_no_room(fresh: Database) -> None:
    _, submission = await prepared(fresh, most=1)
    submitter = Submitter(fresh)
    first = await submitter.submit_once(submission, "k")
    assert await submitter.submit_once(submission, "k") == first
    with pytest.raises(Forbidden, match="max_queued"):
        await submitter.submit_once(submission, "another")


async def test_a_submission_with_room_is_one_statement(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _, submission = await prepared(fresh, most=10)
    submitter, asked = Submitter(fresh), list[str]()
    await submitter.submit(submission)
    for lent in ("connection", "hot"):
        listen(fresh, lent, lambda record: asked.append(record.query), monkeypatch)
    await submitter.submit(submission)
    assert [query for query in asked if query != q("notify")] == [q("submit_limited")]
