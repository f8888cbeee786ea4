"""Rows that clients committed become executions: once each, under the id that the client got."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.params import Param
from mainspring.intake import jobs
from mainspring.intake.executions import Submitter
from mainspring.intake.submissions import move_submissions
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.testing.clock import START, VirtualClock
from mainspring.views import audit as audit_views
from mainspring.views import executions as execution_views
from tests.support.runs import RunBench

pytestmark = pytest.mark.anyio

TENANT = 1


async def submit(connection: Any, job: str, **given: Any) -> UUID:
    arguments = "".join(f", {name} => ${number}" for number, name in enumerate(given, 2))
    found = await connection.fetchval(f"SELECT mainspring.submit(job => $1{arguments})", job, *given.values())
    return UUID(str(found))


async def committed(database: Database, job: str, **given: Any) -> UUID:
    async with database.transaction() as connection:
        return await submit(connection, job, **given)


async def move(database: Database) -> int:
    return await move_submissions(database, Definitions(database))


async def count(database: Database, table: str) -> int:
    async with database.connection() as connection:
        return int(await connection.fetchval(f"SELECT count(*) FROM {table}"))


async def make(database: Database, name: str, **more: Any) -> UUID:
    return await jobs.create(database, JobSpec(name=name, task=NoopTask(), **more), tenant=TENANT, by="test")


async def test_a_committed_row_becomes_the_execution_that_the_client_was_promised(fresh: Database) -> None:
    await make(fresh, "report", params={"region": Param()}, priority=7)
    now = await committed(fresh, "report", params={"region": "us"})
    later = await committed(fresh, "report", params={"region": "eu"}, at=datetime(2099, 1, 1, tzinfo=UTC))
    assert await count(fresh, "executions") == 0
    assert await move(fresh) == 2 and await move(fresh) == 0
    assert await count(fresh, "submissions") == 0
    first = await execution_views.get(fresh, now, tenant=TENANT)
    assert (first.state, first.params, first.priority, first.trigger) == ("queued", {"region": "us"}, 7, "manual")
    assert first.created_by == "database role mainspring"
    second = await execution_views.get(fresh, later, tenant=TENANT)
    assert (second.state, second.due_at) == ("waiting", datetime(2099, 1, 1, tzinfo=UTC))


async def test_a_rolled_back_row_leaves_nothing(fresh: Database) -> None:
    await make(fresh, "report")
    async with fresh.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await submit(connection, "report")
        await transaction.rollback()
    assert await move(fresh) == 0 and await count(fresh, "executions") == 0


async def test_executions_of_one_transaction_keep_their_order(fresh: Database, virtual: VirtualClock) -> None:
    """All within one millisecond: the clock stands still."""
    await make(fresh, "report")
    async with fresh.transaction() as connection:
        made = [await submit(connection, "report") for _ in range(50)]
    assert made == sorted(made) and len(set(made)) == 50
    assert await move(fresh) == 50
    assert (await execution_views.get(fresh, made[0], tenant=TENANT)).due_at == START


async def test_more_than_a_batch_is_moved(fresh: Database) -> None:
    await make(fresh, "report")
    async with fresh.transaction() as connection:
        await connection.execute("SELECT mainspring.submit('report') FROM generate_series(1, 1200)")
    assert await move(fresh) == 1200 and await count(fresh, "executions") == 1200


async def test_two_leaders_move_each_row_once(fresh: Database) -> None:
    await make(fresh, "report")
    async with fresh.transaction() as connection:
        await connection.execute("SELECT mainspring.submit('report', key => n::text) FROM generate_series(1, 600) n")
    moved = await asyncio.gather(*(move(fresh) for _ in range(4)))
    assert sum(moved) == 600 and await count(fresh, "executions") == 600


async def test_limits_by_parameter_apply(fresh: Database) -> None:
    await make(fresh, "report", params={"region": Param()}, concurrency=Concurrency(key="{{params.region}}"))
    for region in ("us", "eu", "us"):
        await committed(fresh, "report", params={"region": region})
    await move(fresh)
    async with fresh.connection() as connection:
        assert await connection.fetchval("SELECT count(DISTINCT line_id) FROM executions") == 2
        assert await connection.fetchval("SELECT count(*) FROM executions WHERE limit_id IS NOT NULL") == 3


# Keys ---------------------------------------------------------------------------------------------------


async def test_the_same_key_is_the_same_execution(fresh: Database) -> None:
    await make(fresh, "report")
    first = await committed(fresh, "report", key="k", params={"b": 1, "a": 2})
    assert await committed(fresh, "report", key="k", params={"a": 2, "b": 1}) == first, "before it was moved"
    with pytest.raises(asyncpg.PostgresError, match="the key 'k' was used for a different request") as refused:
        await committed(fresh, "report", key="k", params={"a": 3})
    assert refused.value.sqlstate == "MS409"
    await move(fresh)
    assert await committed(fresh, "report", key="k", params={"a": 2, "b": 1}) == first, "and after"
    assert await move(fresh) == 0 and await count(fresh, "executions") == 1
    # The API knows the key too, whatever the order of the parameters.
    request = wire.RunNow(key="k", params={"b": 1, "a": 2})
    found = await Submitter(fresh).trigger("report", request, key="k", tenant=TENANT, by="test")
    assert found.execution_id == first
    with pytest.raises(Conflict, match="used for a different request"):
        await Submitter(fresh).trigger("report", wire.RunNow(params={"b": 2}), key="k", tenant=TENANT, by="test")


async def test_a_key_that_the_api_has_used_returns_its_execution(fresh: Database) -> None:
    await make(fresh, "report")
    made = await Submitter(fresh).trigger("report", wire.RunNow(), key="k", tenant=TENANT, by="test")
    assert await committed(fresh, "report", key="k") == made.execution_id
    assert await move(fresh) == 0 and await count(fresh, "executions") == 1


@pytest.mark.parametrize("first_commits", [True, False])
async def test_two_open_transactions_with_one_key_are_ordered(fresh: Database, first_commits: bool) -> None:
    await make(fresh, "report")
    async with fresh.connection() as one, fresh.connection() as other:
        transaction = one.transaction()
        await transaction.start()
        first = await submit(one, "report", key="k")
        waiting = asyncio.ensure_future(submit(other, "report", key="k"))
        pid = other.get_server_pid()
        async with fresh.connection() as watching:
            blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0"
            while not await watching.fetchval(blocked, pid):
                assert not waiting.done()
        await (transaction.commit() if first_commits else transaction.rollback())
        second = await waiting
    assert (second == first) is first_commits
    await move(fresh)
    assert await count(fresh, "executions") == 1
    assert (await execution_views.get(fresh, second, tenant=TENANT)).state == "queued"


async def test_a_key_whose_row_is_moved_meanwhile_returns_the_first(fresh: Database) -> None:
    """The client waits for the leader's transaction, which deletes the row and keeps the key."""
    await make(fresh, "report")
    first = await committed(fresh, "report", key="k")
    async with fresh.connection() as leader, fresh.connection() as other:
        transaction = leader.transaction()
        await transaction.start()
        await leader.execute("DELETE FROM submissions")
        await leader.execute(
            "INSERT INTO idempotency_keys (tenant_id, job_id, key, execution_id, digest)"
            " SELECT 1, job_id, 'k', $1, '' FROM jobs",
            first,
        )
        waiting = asyncio.ensure_future(submit(other, "report", key="k"))
        async with fresh.connection() as watching:
            while not await watching.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", other.get_server_pid()):
                assert not waiting.done()
        await transaction.commit()
        assert await waiting == first
    assert await count(fresh, "submissions") == 0


# What cannot become an execution ------------------------------------------------------------------------


async def test_a_job_that_was_deleted_meanwhile_is_audited_and_holds_up_nothing(fresh: Database) -> None:
    gone, _ = await make(fresh, "gone"), await make(fresh, "report")
    lost = await committed(fresh, "gone")
    kept = await committed(fresh, "report")
    await jobs.delete(fresh, gone, tenant=TENANT, by="test")
    assert await move(fresh) == 2
    assert (await execution_views.get(fresh, kept, tenant=TENANT)).state == "queued"
    (entry,) = (await audit_views.list_entries(fresh, tenant=TENANT, action="execution.reject")).items
    assert (entry.subject, entry.name, entry.actor) == (str(lost), "gone", "database role mainspring")
    assert entry.reason == "the job was deleted before the submission was committed"


async def test_a_row_that_cannot_be_read_is_audited_and_holds_up_nothing(fresh: Database) -> None:
    """The function refuses it; the owner of the schema can still write it."""
    await make(fresh, "report")
    bad, good = await committed(fresh, "report"), await committed(fresh, "report")
    async with fresh.connection() as connection:
        await connection.execute("UPDATE submissions SET params = '[1]' WHERE execution_id = $1", bad)
    assert await move(fresh) == 2
    assert (await execution_views.get(fresh, good, tenant=TENANT)).state == "queued"
    (entry,) = (await audit_views.list_entries(fresh, tenant=TENANT, action="execution.reject")).items
    assert entry.subject == str(bad)


async def test_a_run_of_a_workflow_needs_its_parameters(fresh: Database) -> None:
    bench = RunBench(fresh)
    await bench.apply("flow", {"a": {}}, params={"region": {"type": "string"}})
    bad = await committed(fresh, "flow", params={"regoin": "us"})
    good = await committed(fresh, "flow", params={"region": "us"})
    await move(fresh)
    await bench.timers.run_due()
    await bench.work()
    assert (await bench.run_views.get(good, tenant=TENANT)).state == "succeeded"
    (entry,) = (await audit_views.list_entries(fresh, tenant=TENANT, action="execution.reject")).items
    assert entry.subject == str(bad) and "unknown parameter 'regoin'" in (entry.reason or "")


# What the function refuses ------------------------------------------------------------------------------

DEEP: Any = 1
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("given", "state", "says"),
    [
        ({"params": [1]}, "MS422", "params must be a JSON object"),
        ({"params": "text"}, "MS422", "params must be a JSON object"),
        ({"params": {"a": "x" * 1_000_000}}, "MS422", "more than 1,000,000 bytes"),
        ({"params": {"a": DEEP}}, "MS422", "nested deeper than 32 levels"),
        ({"params": {"a": [2**63]}}, "MS422", "more than 64 bits"),
        ({"params": {"a": {"b": -(2**63) - 1}}}, "MS422", "more than 64 bits"),
        ({"key": ""}, "MS422", "the key must have 1 to 200 characters"),
        ({"key": "k" * 201}, "MS422", "the key must have 1 to 200 characters"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "MS422", "between the years 1 and 9999"),
    ],
)
async def test_what_the_leader_could_not_read_is_refused(
    database: Database, given: dict[str, Any], state: str, says: str
) -> None:
    with pytest.raises(asyncpg.PostgresError, match=says) as refused:
        await committed(database, "report", **given)
    assert refused.value.sqlstate == state


async def test_what_requests_may_contain_is_accepted(fresh: Database) -> None:
    await make(fresh, "report")
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    for params in ({"a": 2**63 - 1, "b": 1.5, "c": None, "d": deep, "straße": "\u2603"}, {}, None):
        await committed(fresh, "report", params=params)
    assert await move(fresh) == 3 and await count(fresh, "executions") == 3
    with pytest.raises(asyncpg.PostgresError, match="there is no job 'nothing'"):
        await committed(fresh, "nothing")
