"""All ways to an idle worker: it is told at once, or it asks. Measured as the benchmark does, a few times each."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from mainspring.dispatch import service
from mainspring.worker.transport.api_client import ApiAddress
from tests.conftest import Cluster, started
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

TIMES = 4


@pytest.fixture
def delivery(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("delivery")


@pytest.mark.requirement(86)
async def test_an_idle_worker_is_told_or_asks(
    cluster: Cluster, database_url: str, delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.client() as client, started(database_url, roles=("api",)) as other:
        await client.create_job({"name": delivery.JOB, "task": {"kind": "noop"}})
        near = await delivery.Idle.register(ApiAddress(cluster.url, cluster.worker_token), "near")
        found = {"found": [await delivery.idle_to_start(near, client, silent=cluster.database)]}
        # After one more look nothing is found by looking: who waits is told, or gets nothing within the long poll.
        monkeypatch.setattr(service, "SLOW_POLL_S", 3600.0)
        found["handed over"] = [await delivery.idle_to_start(near, client) for _ in range(TIMES)]
        found["asked"] = [await delivery.idle_to_start(near, client, every_s=0.05) for _ in range(TIMES)]
        await near.close()
        far = await delivery.Idle.register(ApiAddress(other.url, other.worker_token), "far")
        found["woken"] = [await delivery.idle_to_start(far, client) for _ in range(TIMES)]
        await far.close()
        for way, server in (("pushed", cluster), ("pushed from another process", other)):
            pushed = await delivery.Pushed.register(ApiAddress(server.url, server.worker_token), way)
            found[way] = [await delivery.idle_to_start(pushed, client) for _ in range(TIMES)]
            await pushed.close()
        page = await client.executions(job=delivery.JOB, limit=100)
    measured = [ms for times in found.values() for ms in times]
    assert all(0 < ms < delivery.LONG_POLL_S * 1000 for ms in measured), found
    assert {e.state for e in page.items} == {"succeeded"} and len(page.items) == len(measured)
    assert {e.worker for e in page.items} == {"near", "far", "pushed", "pushed from another process"}
    assert all(e.late_ms is not None and e.late_ms >= 0 for e in page.items)
