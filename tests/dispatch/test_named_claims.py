"""Claims of executions that a queue engine has named: the statement checks what the engine's records say."""

from __future__ import annotations

from uuid import uuid4

import pytest

from mainspring.store.claims import LINE_START
from mainspring.store.queue_feed import claim_ids, ready_executions
from tests.conftest import Cluster
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


async def test_only_queued_executions_of_the_line_and_tenant_are_claimed(cluster: Cluster) -> None:
    async with cluster.client() as client:
        made = []
        for name in ("here", "there"):
            await client.create_job({"name": name, "task": {"kind": "noop"}, "labels": {"zone": name}})
            made.append((await client.trigger(name)).execution_id)
    async with remote(cluster) as worker, cluster.server.database.connection() as connection:
        rows = await connection.fetch("SELECT execution_id, line_id FROM executions")
        line = {row["execution_id"]: row["line_id"] for row in rows}
        here, there = made
        assert line[here] != line[there]
        found = await ready_executions(connection, lines=[(line[here], LINE_START, 10)])
        assert [(each.execution_id, each.line) for each in found] == [(here, line[here])]

        async def claimed(tenant: int = 1) -> list[object]:
            rows = await claim_ids(
                connection,
                tenant=tenant,
                line_id=line[here],
                execution_ids=[there, uuid4(), here],
                sessions=[worker.session_id],
                slot_order=[1, 1, 1],
            )
            return [row["execution_id"] for row in rows]

        assert await claimed(tenant=2) == []
        assert await claimed() == [here]
        assert await claimed() == []
