"""Sessions are renewed, ended and expired by owner and lease."""

from __future__ import annotations

from uuid import uuid4

from mainspring.store import sessions
from mainspring.store.sessions import Heartbeat
from mainspring.testing.clock import VirtualClock
from tests.support.settling import TENANT, SettlingBench


async def test_a_heartbeat_renews_only_a_live_session_of_its_tenant(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    mine, ended = await bench.session(lease_s=10), await bench.session(lease_s=10)
    async with bench.database.connection() as connection:
        await sessions.end_session(connection, tenant=TENANT, session_id=ended, lost=False)
        beats = [Heartbeat(TENANT, mine, []), Heartbeat(TENANT, ended, []), Heartbeat(TENANT, uuid4(), [])]
        assert await sessions.renew_sessions(connection, beats=beats, lease_s=99) == {mine: 10}
        stranger = [Heartbeat(TENANT + 1, mine, [])]
        assert await sessions.renew_sessions(connection, beats=stranger, lease_s=99) == {}
        await virtual.advance(seconds=8)
        assert await sessions.renew_sessions(connection, beats=[Heartbeat(TENANT, mine, [])], lease_s=99) == {mine: 10}
        await virtual.advance(seconds=8)
        assert (await sessions.expire_sessions(connection))[0] == []


async def test_a_session_ends_once_and_only_for_its_tenant(bench: SettlingBench) -> None:
    session = await bench.session()
    async with bench.database.connection() as connection:
        assert not await sessions.end_session(connection, tenant=TENANT + 1, session_id=session, lost=True)
        assert await sessions.session_by_id(connection, tenant=TENANT, session_id=session) is not None
        assert await sessions.end_session(connection, tenant=TENANT, session_id=session, lost=True)
        assert not await sessions.end_session(connection, tenant=TENANT, session_id=session, lost=False)
        assert await sessions.session_by_id(connection, tenant=TENANT, session_id=session) is None


async def test_sessions_expire_with_their_lease_and_leave_orphans(bench: SettlingBench, virtual: VirtualClock) -> None:
    execution, session = await bench.started()
    async with bench.database.connection() as connection:
        assert await sessions.expire_sessions(connection) == ([], 20.0)
        assert await sessions.orphans(connection, limit=10) == []
        await virtual.advance(seconds=21)
        assert await sessions.expire_sessions(connection) == ([session], None)
        (orphan,) = await sessions.orphans(connection, limit=10)
        assert (orphan.execution_id, orphan.attempt, orphan.session_state) == (execution, 1, "lost")
        assert await sessions.expire_sessions(connection) == ([], None)


async def test_a_session_sees_only_its_own_cancellations(bench: SettlingBench) -> None:
    execution, session = await bench.started()
    other = await bench.session()
    async with bench.database.connection() as connection:
        assert await sessions.session_cancels(connection, tenant=TENANT, session_id=session) == []
        await connection.execute("UPDATE executions SET cancel_at = db_now() WHERE execution_id = $1", execution)
        assert await sessions.session_cancels(connection, tenant=TENANT, session_id=session) == [execution]
        assert await sessions.session_cancels(connection, tenant=TENANT, session_id=other) == []
        assert await sessions.session_cancels(connection, tenant=TENANT + 1, session_id=session) == []
