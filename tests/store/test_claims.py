"""A claim starts queued executions of one tenant's line for live sessions, and nothing else."""

from __future__ import annotations

from uuid import UUID, uuid4

from mainspring.domain.limit import Concurrency
from mainspring.store import claims, sessions
from mainspring.store.claims import LINE_START, Claimed
from mainspring.store.db import Connection
from mainspring.testing.clock import VirtualClock
from tests.support.settling import TENANT, SettlingBench


async def claim(bench: SettlingBench, session: UUID, *, tenant: int = TENANT, slots: int = 1) -> list[Claimed]:
    async with bench.database.connection() as connection:
        (line_id,) = await claims.queued_lines(connection, limit=10)
        return await claims.claim(
            connection,
            tenant=tenant,
            line_id=line_id,
            after=LINE_START,
            sessions=[session],
            slot_order=[1] * slots,
        )


async def test_a_claim_starts_the_first_executions_of_a_line_for_a_session(bench: SettlingBench) -> None:
    job = await bench.job()
    first, second = await bench.submit(job), await bench.submit(job)
    session = await bench.session()
    (row,) = await claim(bench, session)
    assert (row["execution_id"], row["attempt"], row["session_id"]) == (min(first, second), 1, session)
    assert [r["execution_id"] for r in await claim(bench, session, slots=5)] == [max(first, second)]
    assert await bench.live() == {"running": 2}


async def test_a_claim_neither_waits_for_nor_takes_what_another_is_claiming(bench: SettlingBench) -> None:
    job = await bench.job()
    made = sorted([await bench.submit(job), await bench.submit(job)])
    session, other = await bench.session(), await bench.session()
    async with bench.database.transaction() as first:
        (line_id,) = await claims.queued_lines(first, limit=10)

        async def one(connection: Connection, of: UUID) -> list[UUID]:
            rows = await claims.claim(
                connection, tenant=TENANT, line_id=line_id, after=LINE_START, sessions=[of], slot_order=[1]
            )
            return [row["execution_id"] for row in rows]

        assert await one(first, session) == made[:1]
        async with bench.database.transaction() as second:
            await second.execute("SET LOCAL lock_timeout = '2s'")
            assert await one(second, other) == made[1:], "the first transaction is still open"
    assert await bench.live() == {"running": 2}


async def test_a_claim_of_another_tenant_starts_nothing(bench: SettlingBench) -> None:
    await bench.submit(await bench.job())
    assert await claim(bench, await bench.session(), tenant=TENANT + 1) == []
    assert await bench.live() == {"queued": 1}


async def test_a_claim_for_an_expired_ended_or_draining_session_starts_nothing(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    await bench.submit(await bench.job())
    expired, ended, draining = await bench.session(lease_s=5), await bench.session(600), await bench.session(600)
    await virtual.advance(seconds=6)
    async with bench.database.connection() as connection:
        await sessions.end_session(connection, tenant=TENANT, session_id=ended, lost=False)
        beat = sessions.Heartbeat(TENANT, draining, [], draining=True)
        await sessions.renew_sessions(connection, beats=[beat], lease_s=600)
    for session in (expired, ended, draining, uuid4()):
        assert await claim(bench, session) == []
    assert await bench.live() == {"queued": 1}
    assert len(await claim(bench, await bench.session())) == 1


async def test_an_execution_past_its_start_by_is_not_claimed(bench: SettlingBench, virtual: VirtualClock) -> None:
    job = await bench.job(start_by="10s")
    await bench.submit(job)
    session = await bench.session(600)
    await virtual.advance(seconds=11)
    assert await claim(bench, session) == []
    late = await bench.submit(job)
    assert [r["execution_id"] for r in await claim(bench, session, slots=2)] == [late]


async def test_a_matched_execution_starts_once(bench: SettlingBench) -> None:
    execution = await bench.submit(await bench.job())
    session, other = await bench.session(), await bench.session()
    async with bench.database.connection() as connection:
        (row,) = await claims.start_matched(connection, matched=[(execution, session)])
        assert row["session_id"] == session
        assert await claims.start_matched(connection, matched=[(execution, other)]) == []
        assert await claims.start_matched(connection, matched=[(uuid4(), other)]) == []
    assert (await bench.look(execution)).state == "running"


async def test_a_keyed_claim_starts_as_many_as_the_key_has_slots(bench: SettlingBench) -> None:
    job = await bench.job(concurrency=Concurrency(limit=2, key="db"))
    for _ in range(3):
        await bench.submit(job)
    session = await bench.session()
    async with bench.database.connection() as connection:
        (line_id,) = await claims.queued_lines(connection, limit=10)
        key = await connection.fetchval("SELECT limit_id FROM lines WHERE line_id = $1", line_id)
        arguments = {"tenant": TENANT, "line_id": line_id, "after": LINE_START, "sessions": [session], "key": key}
        rows = await claims.claim(connection, slot_order=[1] * 5, **arguments)
        assert [r["slots"] for r in rows] == [2, 2]
        assert await claims.claim(connection, slot_order=[1], **arguments) == []
    assert await bench.end(rows[0]["execution_id"], session, "succeeded", duration_ms=1)
    async with bench.database.connection() as connection:
        assert len(await claims.claim(connection, slot_order=[1], **arguments)) == 1


async def test_nothing_of_a_suspended_tenant_starts(bench: SettlingBench) -> None:
    """Each way to start an execution checks the tenant in its own statement: caches are seconds old."""
    first, second = await bench.job(), await bench.job(concurrency=Concurrency(key="k", limit=5))
    await bench.submit(first)
    session = await bench.session()
    async with bench.database.connection() as connection:
        await connection.execute("UPDATE tenants SET suspended_at = db_now() WHERE tenant_id = $1", TENANT)
    assert await claim(bench, session, slots=5) == [], "claim"
    await bench.submit(second)
    async with bench.database.connection() as connection:
        lines = [(line, LINE_START, 5) for line in await claims.queued_lines(connection, limit=10)]
        rows = [row for found in (await claims.peek(connection, lines=lines)).values() for row in found]
        assert len(rows) == 2
        matched = [(execution, session) for _, execution in rows]
        assert await claims.start_matched(connection, matched=matched) == [], "start_matched"
        for line_id in await claims.queued_lines(connection, limit=10):
            key = await connection.fetchval("SELECT max(limit_id) FROM executions WHERE line_id = $1", line_id)
            found = await claims.claim(
                connection,
                tenant=TENANT,
                line_id=line_id,
                after=LINE_START,
                sessions=[session],
                slot_order=[1],
                key=key,
            )
            assert found == [], f"claim with the key {key}"
    assert await bench.live() == {"queued": 2}
    async with bench.database.connection() as connection:
        await connection.execute("UPDATE tenants SET suspended_at = NULL WHERE tenant_id = $1", TENANT)
    assert len(await bench.claim(session, slots=5)) == 2
