"""Authentication under many concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mainspring.api.auth import Authenticator, issue_token
from mainspring.domain.errors import Unauthenticated
from mainspring.domain.grants import EVERYTHING
from mainspring.store.db import Connection, Database
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio


class Counted(Database):
    """How often somebody wanted a connection."""

    lent = 0

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        self.lent += 1
        async with super().connection() as connection:
            yield connection


async def test_a_fleet_with_one_token_is_one_question_to_the_database(cluster: Cluster) -> None:
    async with cluster.database.connection() as connection:
        token = await issue_token(connection, tenant=1, name="fleet", scopes=("worker",), grants=EVERYTHING)
    database = Counted(cluster.database.dsn, size=2)
    async with database:
        auth = Authenticator(database)
        callers = await asyncio.gather(*[auth.by_token(token) for _ in range(500)])
        assert {caller.name.name for caller in callers} == {"fleet"}
        assert database.lent == 1


async def test_whoever_gives_up_leaves_the_answer_to_the_others(cluster: Cluster) -> None:
    database = Counted(cluster.database.dsn, size=2)
    async with database:
        auth = Authenticator(database)
        first, second = [asyncio.create_task(auth.by_token(cluster.token)) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).name.name == "test admin"
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await auth.by_token("ms_unknown")
        assert database.lent == 3, "what is unknown is not remembered"
