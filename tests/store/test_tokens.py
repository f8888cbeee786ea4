"""Tokens are valid until they expire or are revoked; schedule quotas are granted per hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from mainspring.store import tokens
from mainspring.store.db import Connection
from mainspring.testing.clock import START, VirtualClock
from tests.support.settling import TENANT, SettlingBench


async def insert(connection: Connection, digest: bytes, expires_at: datetime | None = None) -> UUID:
    token_id = uuid4()
    await tokens.insert_token(
        connection,
        tokens.NewToken("pipeline", ["read"], expires_at=expires_at),
        tenant=TENANT,
        token_id=token_id,
        digest=digest,
    )
    return token_id


async def test_a_token_is_found_by_its_digest_until_it_expires(bench: SettlingBench, virtual: VirtualClock) -> None:
    async with bench.database.connection() as connection:
        token_id = await insert(connection, b"one", expires_at=START + timedelta(seconds=10))
        found = await tokens.token_by_digest(connection, digest=b"one")
        assert found is not None and (found.token_id, found.scopes) == (token_id, frozenset({"read"}))
        assert await tokens.token_by_digest(connection, digest=b"other") is None
        await virtual.advance(seconds=10)
        assert await tokens.token_by_digest(connection, digest=b"one") is None


async def test_a_token_is_revoked_once_and_only_by_its_tenant(bench: SettlingBench) -> None:
    async with bench.database.connection() as connection:
        token_id = await insert(connection, b"one")
        assert await tokens.revoke_token(connection, tenant=TENANT + 1, token_id=token_id) is None
        assert await tokens.token_by_digest(connection, digest=b"one") is not None
        assert await tokens.revoke_token(connection, tenant=TENANT, token_id=token_id) == "pipeline"
        assert await tokens.revoke_token(connection, tenant=TENANT, token_id=token_id) is None
        assert await tokens.token_by_digest(connection, digest=b"one") is None
        assert await tokens.list_tokens(connection, tenant=TENANT, limit=10) == []


async def test_a_quota_is_granted_in_parts_until_it_is_used_up_and_again_after_an_hour(
    bench: SettlingBench, virtual: VirtualClock
) -> None:
    async with bench.database.connection() as connection:
        token_id = await insert(connection, b"one")
        for _ in range(2):  # repeatable
            await tokens.begin_grants(connection, tenant=TENANT, holder=token_id)

        async def grant() -> tokens.ScheduleGrant:
            return await tokens.grant_schedules(connection, tenant=TENANT, holder=token_id, most=16)

        granted = []
        while part := (await grant()).granted:
            granted.append(part)
        assert granted[0] == 2 and sum(granted) == 16, "an eighth of what is left, at least one"
        refused = await grant()
        assert (refused.granted, refused.reset_at, refused.left_s) == (0, START + timedelta(hours=1), 3600)
        await virtual.advance(hours=1)
        assert (await grant()).granted == 2
