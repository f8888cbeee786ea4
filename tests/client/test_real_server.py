"""The most common client calls against a real server and worker."""

from __future__ import annotations

import asyncio
import json

import pytest

from mainspring.api.app import endpoints
from mainspring.api.openapi import document
from mainspring.client import Client
from mainspring.codec import encode
from mainspring.domain.errors import Conflict
from tests.conftest import Cluster
from tests.support.principals import without_ids

pytestmark = pytest.mark.anyio

ROUTES = (
    ("get", "/api/v1/jobs/{ref}"), ("get", "/api/v1/executions"), ("get", "/api/v1/jobs/{ref}/executions"),
    ("get", "/api/v1/executions/{ref}/logs"), ("post", "/api/v1/jobs/{ref}/trigger"),
    ("post", "/api/v1/executions/{ref}/cancel"),
)  # fmt: skip


def walk(url: str, token: str) -> None:
    with Client(url, token) as client:
        spec = {
            "name": "asked",
            "task": {"kind": "shell", "argv": ["sh", "-c", "echo out; echo err >&2"]},
            "schedule": {"every": "10h"},
        }
        client.create_job(spec)
        before = client.job("asked")
        assert (before.state, before.last) == ("active", []) and before.next_fire_at is not None

        ended = [client.wait(client.trigger("asked").execution_id, timeout_s=60) for _ in range(3)]
        assert [found.state for found in ended] == ["succeeded"] * 3
        status = client.job("asked")
        assert [last.state for last in status.last] == ["succeeded"] * 3
        assert status.next_fire_at == before.next_fire_at, "running it by hand leaves its cadence alone"

        newest = [found.execution_id for found in reversed(ended)]
        for page in (client.history("asked", limit=2), client.executions(job="asked", limit=2)):
            assert [found.execution_id for found in page.items] == newest[:2] and page.next_cursor is not None
        rest = client.executions(job="asked", limit=2, cursor=page.next_cursor)
        assert [found.execution_id for found in rest.items] == newest[2:] and rest.next_cursor is None
        chunks = client.logs(newest[0]).chunks
        assert sorted((chunk.stream, chunk.text) for chunk in chunks) == [("stderr", "err\n"), ("stdout", "out\n")]

        client.create_job(spec | {"name": "unserved", "queue": "nobody"})
        execution = client.trigger("unserved").execution_id
        cancelled = client.cancel(execution, "not needed")
        assert (cancelled.state, without_ids(cancelled.reason)) == ("cancelled", "cancelled by test admin: not needed")
        with pytest.raises(Conflict):
            client.cancel(execution)


@pytest.mark.requirement(125)
async def test_status_executions_output_run_and_cancel(cluster: Cluster) -> None:
    paths = json.loads(encode(document(endpoints())))["paths"]
    assert all(method in paths[path] for method, path in ROUTES)
    async with cluster.worker():
        await asyncio.to_thread(walk, cluster.url, cluster.token)
