"""Concurrent submissions share a statement; each caller gets its own execution, of the current version of its job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.params import Param
from mainspring.intake import jobs
from mainspring.intake.executions import Submission, Submitter
from mainspring.store.db import Connection, Database, Pool
from mainspring.store.queries import all_queries, q
from mainspring.views import executions as execution_views

pytestmark = pytest.mark.anyio

TENANT = 1
OWN = set(all_queries().values()) - {q("notify")}  # not those of the driver
NUMBER = {"n": Param(type="integer")}


class CountingDatabase(Database):
    """Counts statements."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.statements: Counter[str] = Counter()

    @asynccontextmanager
    async def _lend(self, pool: Pool) -> AsyncIterator[Connection]:
        async with super()._lend(pool) as connection:
            connection.add_query_logger(self._log)  # until the connection is returned
            yield connection

    def _log(self, record: Any) -> None:
        if record.query in OWN:
            self.statements[record.query] += 1


async def add_tenant(database: Database, name: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id", name))


async def add_job(database: Database, name: str, *, tenant: int = TENANT, **spec: Any) -> UUID:
    return await jobs.create(database, JobSpec(name=name, task=NoopTask(), **spec), tenant=tenant, by="test")


async def rows_of(database: Database) -> dict[UUID, Any]:
    async with database.connection() as connection:
        return {r["execution_id"]: r for r in await connection.fetch("SELECT * FROM executions")}


async def run(submitter: Submitter, ref: str, *, key: str | None = None, tenant: int = TENANT, **request: Any) -> Any:
    return await submitter.trigger(ref, wire.RunNow(**request), key=key, tenant=tenant, by=f"caller {tenant}")


async def test_each_of_many_concurrent_callers_gets_its_own_execution(fresh: Database) -> None:
    """Several tenants, jobs with and without params, and versions that change meanwhile."""
    tenants = [TENANT, *[await add_tenant(fresh, name) for name in ("b", "c")]]
    made = {(t, name): await add_job(fresh, name, tenant=t) for t in tenants for name in ("plain", "other")}
    made |= {(t, "asks"): await add_job(fresh, "asks", tenant=t, params=NUMBER) for t in tenants}
    submitter = Submitter(fresh)

    async def submit(number: int) -> tuple[int, str, int, wire.Execution]:
        tenant, name = list(made)[number % len(made)]
        return tenant, name, number, await run(submitter, name, tenant=tenant, params={"n": number})

    async def edit(tenant: int, name: str) -> None:
        for priority in (3, 4, 5):
            await jobs.patch(fresh, made[tenant, name], {"priority": priority}, tenant=tenant, by="test")

    edits = [edit(tenant, name) for tenant in tenants for name in ("plain", "asks")]
    editing = asyncio.gather(*edits)
    answers = await asyncio.gather(*[submit(n) for n in range(200)])
    await editing
    rows = await rows_of(fresh)
    assert len(rows) == 200 == len({answer.execution_id for *_, answer in answers})
    for tenant, name, number, answer in answers:
        row = rows[answer.execution_id]
        assert (row["tenant_id"], row["job_id"], row["params"]) == (tenant, made[tenant, name], {"n": number})
        assert (answer.job, answer.params, answer.created_by) == (name, {"n": number}, f"caller {tenant}")
        assert (answer.version, answer.priority) == (row["version"], row["priority"])
    for (tenant, name), _ in made.items():
        last = await run(submitter, name, tenant=tenant, params={"n": 0})
        assert last.version == (1 if name == "other" else 4)


async def test_a_job_deleted_midway_is_not_found_from_then_on(fresh: Database) -> None:
    job_id = await add_job(fresh, "job")
    submitter = Submitter(fresh)
    await run(submitter, "job")
    deleted = asyncio.Event()

    async def submit(number: int) -> UUID | None:
        if number >= 40:
            await deleted.wait()
        try:
            answer: wire.Execution = await run(submitter, "job" if number % 2 else str(job_id))
        except NotFound:
            return None
        assert number < 40, "it was deleted before"
        return answer.execution_id

    async def delete() -> None:
        await jobs.delete(fresh, job_id, tenant=TENANT, by="test")
        deleted.set()

    answers, _ = await asyncio.gather(asyncio.gather(*[submit(n) for n in range(80)]), delete())
    async with fresh.connection() as connection:
        known = {r["execution_id"] for r in await connection.fetch("SELECT execution_id FROM all_executions")}
    assert {answer for answer in answers if answer is not None} <= known
    assert len(known) == 1 + sum(answer is not None for answer in answers)
    # The name is free again: a new job of that name is another one.
    again = await add_job(fresh, "job")
    assert (await run(submitter, "job")).job_id == again


async def test_the_response_is_what_a_read_returns(fresh: Database) -> None:
    await add_job(fresh, "job", params=NUMBER, metadata={"team": "a"}, priority=7, start_by="1h", queue="long")
    submitter, later = Submitter(fresh), datetime(2099, 1, 2, 3, 4, 5, 678000, UTC)
    requests: list[dict[str, Any]] = [
        {"params": {"n": 1}},
        {"params": {"n": 1}, "at": later},
        {"params": {"n": 1}, "at": later - timedelta(days=40000)},
        {"params": {"n": 1}, "fire_at": later},
        {"params": {"n": 1}, "at": later, "fire_at": later - timedelta(days=3), "reason": "by hand"},
    ]
    for request in requests:
        for key in (None, f"key of {request}"):
            made = await run(submitter, "job", key=key, **request)
            assert made == await execution_views.get(fresh, made.execution_id, tenant=TENANT)
            assert made.state == ("waiting" if request.get("at") == later else "queued")
            assert made.fire_at == request.get("fire_at", made.due_at)


async def test_a_batch_is_one_statement(fresh: Database) -> None:
    database = CountingDatabase(fresh.dsn)
    async with database:
        submitter = Submitter(database)
        for name in ("a", "b"):
            await add_job(fresh, name, params=NUMBER)
            await run(submitter, name, params={"n": 0})
        later = datetime(2099, 1, 1, tzinfo=UTC)
        database.statements.clear()
        requests: list[dict[str, Any]] = [{"params": {"n": 1}}, {"params": {"n": 2}, "at": later}]
        requests.append({"params": {"n": 3}, "fire_at": later})
        await asyncio.gather(*[run(submitter, name, **request) for name in ("a", "b") for request in requests])
        assert database.statements == {q("submit"): 1}
        database.statements.clear()
        await run(submitter, "a", key="k", params={"n": 1})
        assert database.statements == {q("submit_keyed"): 1}
        await run(submitter, "a", key="other", params={"n": 1}, reason="")
        assert database.statements[q("submit_keyed")] == 2
        database.statements.clear()
        keyed = [run(submitter, "a", key=key, params={"n": 1}) for key in ("k", "k2", "k3", "k3", None)]
        first, second, third, same, _ = await asyncio.gather(*keyed)
        assert database.statements[q("submit_keyed")] == 1, "those with and without a key are one batch"
        assert third.execution_id == same.execution_id
        assert len({first.execution_id, second.execution_id, third.execution_id}) == 3


async def test_params_are_checked_against_the_current_version(fresh: Database) -> None:
    job_id = await add_job(fresh, "job", params=NUMBER)
    submitter = Submitter(fresh)
    await run(submitter, "job", params={"n": 1})
    with pytest.raises(Invalid, match="'n' is an integer"):
        await run(submitter, "job", params={"n": "one"})
    text = {"n": {"type": "string"}}
    await jobs.patch(fresh, job_id, {"params": text}, tenant=TENANT, by="test")
    assert (await run(submitter, "job", params={"n": "one"})).version == 2, "refused by the cached version only"
    await jobs.patch(fresh, job_id, {"params": {"n": {"type": "integer"}}}, tenant=TENANT, by="test")
    with pytest.raises(Invalid, match="'n' is an integer"):
        await run(submitter, "job", params={"n": "one"})
    assert len(await rows_of(fresh)) == 2


async def test_a_name_that_moves_to_another_job(fresh: Database) -> None:
    first = await add_job(fresh, "job")
    submitter = Submitter(fresh)
    assert (await run(submitter, "job")).job_id == first
    await jobs.patch(fresh, first, {"name": "renamed"}, tenant=TENANT, by="test")
    with pytest.raises(NotFound):
        await run(submitter, "job")
    second = await add_job(fresh, "job")
    assert (await run(submitter, "job")).job_id == second
    assert (await run(submitter, str(first))).job == "renamed"


async def test_lines_by_params_in_one_batch(fresh: Database) -> None:
    """Executions whose limit key depends on their params, among others that have the line of their job."""
    await add_job(fresh, "keyed", concurrency=Concurrency(limit=1, key="{{ params.n }}"), params=NUMBER)
    await add_job(fresh, "plain", params=NUMBER)
    submitter = Submitter(fresh)
    jobs_and_params = [("keyed", 1), ("plain", 1), ("keyed", 2), ("keyed", 1), ("plain", 2)]
    answers = await asyncio.gather(*[run(submitter, name, params={"n": n}) for name, n in jobs_and_params])
    rows = await rows_of(fresh)
    lines = [(rows[a.execution_id]["line_id"], rows[a.execution_id]["limit_id"]) for a in answers]
    assert lines[0] == lines[3] != lines[2] and lines[1] == lines[4]
    assert None not in (lines[0][1], lines[2][1]) and lines[1][1] is None


async def test_one_execution_for_concurrent_requests_with_the_same_key(fresh: Database) -> None:
    await add_job(fresh, "job", params=NUMBER)
    submitters = [Submitter(fresh), Submitter(fresh)]
    answers = await asyncio.gather(
        *[run(submitters[n % 2], "job", key="k", params={"n": 1}, reason="" if n % 3 else None) for n in range(30)]
    )
    assert len({answer.execution_id for answer in answers}) == 1 == len(await rows_of(fresh))
    with pytest.raises(Conflict, match="different request"):
        await run(submitters[0], "job", key="k", params={"n": 2})
    async with fresh.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM audit WHERE action = 'job.trigger'") <= 1


async def test_a_batch_with_another_tenants_job(fresh: Database) -> None:
    """A job id is no way to another tenant's job, whoever shares the statement."""
    other = await add_tenant(fresh, "other")
    job_id, foreign = await add_job(fresh, "job"), await add_job(fresh, "job", tenant=other)
    submitter = Submitter(fresh)
    own, refused, theirs = await asyncio.gather(
        submitter.submit(Submission(TENANT, "a", job_id)),
        submitter.submit(Submission(TENANT, "a", foreign)),
        submitter.submit(Submission(other, "b", foreign)),
        return_exceptions=True,
    )
    assert isinstance(refused, NotFound)
    rows = await rows_of(fresh)
    assert {row["execution_id"]: (row["tenant_id"], row["created_by"]) for row in rows.values()} == {
        own: (TENANT, "a"),
        theirs: (other, "b"),
    }
