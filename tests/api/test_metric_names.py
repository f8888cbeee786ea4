"""Metrics by name, with values that follow what happens."""

from __future__ import annotations

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

NAMES = (
    "wheel_entries", "shard_jobs", "tick_seconds_count", "shard_heartbeat_age_seconds", "queue_oldest_seconds",
    "results_pending", "dead_letters", "runs_finished_total", "idempotency_skips_total",
)  # fmt: skip
"""Jobs on the wheel and of shards, latency of ticks, heartbeats of shards, lags, dead letters, finished runs, skips."""


async def scraped(cluster: Cluster) -> dict[str, float]:
    """The sum of the samples of each metric."""
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        text = (await http.get("/metrics")).text
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("mainspring_"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0].removeprefix("mainspring_")
            found[name] = found.get(name, 0.0) + float(value)
    return found


@pytest.mark.requirement(137)
async def test_a_scrape_has_every_name_and_counts(cluster: Cluster, client: AsyncClient) -> None:
    before = await scraped(cluster)
    await client.create_job({"name": "ticks", "task": {"kind": "noop"}, "schedule": {"every": "1s"}, "queue": "ticks"})
    failing = {"kind": "shell", "argv": ["false"]}
    await client.create_job({"name": "fails", "task": failing, "retries": {"max": 0}})
    await client.apply_workflow({"name": "flow", "steps": {"one": {"task": {"kind": "noop"}}}})
    request = wire.RunNow(key="only-once")
    first, again = [await client.trigger("fails", request) for _ in range(2)]
    assert first.execution_id == again.execution_id
    async with cluster.worker():
        await client.start_run("flow")
        await client.wait(first.execution_id, timeout_s=60)

        async def counted() -> bool:
            now = await scraped(cluster)
            grown = ("tick_seconds_count", "runs_finished_total", "idempotency_skips_total", "dead_letters")
            return all(now.get(name, 0) > before.get(name, 0) for name in grown) and now.get("wheel_entries", 0) > 0

        await until_async("the metrics show it", counted, within_s=60)

        async def shown() -> bool:
            return set(NAMES) <= (await scraped(cluster)).keys()

        await until_async("every name is shown", shown, within_s=60)
    assert (await scraped(cluster))["idempotency_skips_total"] == before.get("idempotency_skips_total", 0) + 1
