"""The quota of output per tenant and day: output beyond it is cut, visibly, and executions go on."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from mainspring import wire
from mainspring.alerts.readings import ReadingHistory, take_readings
from mainspring.client import AsyncClient
from mainspring.results.output_quota import OutputQuotas
from mainspring.store import logs
from mainspring.store.db import Database
from mainspring.store.logs import Appended
from tests.conftest import Cluster
from tests.support.processes import until_async
from tests.support.silent_bus import SilentBus

pytestmark = pytest.mark.anyio

CUT = "[output cut: the quota of the tenant for output per day is used up]"


async def output_of(client: AsyncClient, job: str) -> tuple[str, str]:
    """Run a job; return its state and its output."""
    made = await client.trigger(job)
    ended = await client.wait(made.execution_id, timeout_s=60)
    found = await client.logs(made.execution_id)
    return ended.state, "".join(chunk.text for chunk in found.chunks)


async def limit(cluster: Cluster, client: AsyncClient, most: int | None) -> None:
    await client.edit_tenant("default", wire.TenantSettings(output_per_day=most))
    quotas = cluster.server.settler._output
    assert quotas is not None

    async def known() -> bool:
        return (None if not quotas._quotas else quotas._quotas[1].most) == most

    await until_async("the server knows the quota", known, within_s=30)


async def test_output_beyond_the_quota_is_cut(cluster: Cluster, client: AsyncClient) -> None:
    loud = 'i=0; while [ $i -lt 30 ]; do echo "line $i of some output, padded"; i=$((i+1)); done'
    for name, more in (("loud", ""), ("loud-failing", "; exit 3")):
        task = {"kind": "shell", "argv": [loud + more], "shell": True}
        await client.create_job({"name": name, "task": task, "retries": {"max": 0}})
    counted = REGISTRY.get_sample_value("mainspring_output_cut_total") or 0
    async with cluster.worker():
        await limit(cluster, client, 1_500)
        for _ in range(2):
            state, text = await output_of(client, "loud")
            assert state == "succeeded" and text.count("line") == 30, "below the quota, all of it is kept"
        for job, expected in (("loud", "succeeded"), ("loud-failing", "failed"), ("loud", "succeeded")):
            state, text = await output_of(client, job)
            assert (state, text.strip()) == (expected, CUT), "the execution counts, and its output says why it is gone"
        assert REGISTRY.get_sample_value("mainspring_output_cut_total") == counted + 3
        quotas = cluster.server.settler._output
        assert quotas is not None
        await quotas.flush()
        shown = await client.tenant("default")
        assert shown.output_per_day == 1_500 and 1_500 <= shown.output_today < 3_000
        async with cluster.database.connection() as connection:
            _, readings = await take_readings(connection, ReadingHistory())
        (reading,) = [reading for reading in readings if reading.condition == "output_quota"]
        assert reading.tenant == 1 and reading.value >= 1 and "output beyond it is cut" in reading.says
        await limit(cluster, client, None)
        state, text = await output_of(client, "loud")
        assert text.count("line") == 30, "without a quota it is kept again"


async def test_processes_count_together_and_lose_nothing_on_a_failure(fresh: Database) -> None:
    first, second = OutputQuotas(fresh, SilentBus()), OutputQuotas(fresh, SilentBus())
    async with fresh.connection() as connection:
        await connection.execute("UPDATE tenants SET output_per_day = 100 WHERE tenant_id = 1")
    for quotas in (first, second):
        await quotas.flush()
    first.add([Appended(1, 60, 0)])
    second.add([Appended(1, 60, 0)])
    assert (first.cut, second.cut) == ((), ())
    await first.flush()
    await second.flush()
    assert (first.cut, second.cut) == ((), (1,))
    first.add([Appended(1, 40, 0)])
    assert first.cut == (1,), "its own output counts at once"
    await fresh.close()
    with pytest.raises(Exception):  # noqa: B017 - whatever a closed pool raises
        await first.flush()
    assert first._stored == {1: 40}, "it is written the next time"


async def test_the_day_before_does_not_count(fresh: Database) -> None:
    quotas = OutputQuotas(fresh, SilentBus())
    async with fresh.connection() as connection:
        await connection.execute("UPDATE tenants SET output_per_day = 100 WHERE tenant_id = 1")
        await connection.execute(
            "INSERT INTO tenant_output SELECT 1, (db_now() AT TIME ZONE 'UTC')::date - n, 1000"
            " FROM generate_series(1, 9) n"
        )
    await quotas.flush()
    assert quotas.cut == ()
    async with fresh.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM tenant_output") == 7
        assert await logs.append_logs(connection, chunks=[], cut=[1]) == []
