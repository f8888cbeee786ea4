"""Shard owners in the API, the doctor and the metrics."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx2

from mainspring.store import doctor
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.conftest import Cluster
from tests.support.scheduling import scheduler_on, step


async def test_the_scheduler_and_its_shards_are_shown(cluster: Cluster) -> None:
    async with cluster.client() as client:
        found = await client.shards()
    (process,) = found.schedulers
    assert (process.state, process.shards) == ("active", 64)
    assert {shard.owner for shard in found.shards} == {process.name}
    assert [shard.shard for shard in found.shards] == list(range(64))
    assert all(shard.epoch == 1 and shard.lag_s < 10 for shard in found.shards)


async def test_the_metrics_name_every_shard_and_one_leader(cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as client:
        text = (await client.get("/metrics")).text
    ages = re.findall(r'mainspring_shard_heartbeat_age_seconds{shard="\d+"} (\S+)', text)
    assert len(ages) == 64 and all(float(age) < 10 for age in ages)
    assert "mainspring_scheduler_is_leader 1.0" in text
    for name in ("wheel_entries", "tick_seconds_count", "clock_skew_seconds"):
        assert f"mainspring_{name} " in text


async def test_the_doctor_finds_shards_nobody_decides_for(fresh: Database, virtual: VirtualClock) -> None:
    scheduler = await scheduler_on(fresh)
    await step(scheduler)
    assert await offenders(fresh) == {"I2": 0, "I17": 0}
    await virtual.advance(seconds=20)
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET watermark = db_now() WHERE shard >= 3")
        await connection.execute("UPDATE shards SET owner = NULL, lease_expires_at = NULL WHERE shard IN (2, 3)")
        await connection.execute("UPDATE shards SET lease_expires_at = db_now() - interval '11 s' WHERE shard = 9")
    assert await offenders(fresh) == {"I2": 3, "I17": 2}, "shard 3 has been free for a moment only"


async def test_a_dead_scheduler_is_shown_as_lost(fresh: Database, virtual: VirtualClock) -> None:
    from mainspring.views.overview import shards_now

    await scheduler_on(fresh)
    await virtual.advance(seconds=31)
    second = await scheduler_on(fresh)
    async with fresh.connection() as connection:
        await connection.execute("UPDATE shards SET owner = $1 WHERE shard = 5", stranger := uuid4())
    found = await shards_now(fresh)
    assert [process.state for process in found.schedulers] == ["lost", "active"]
    assert [process.shards for process in found.schedulers] == [0, 63]
    assert found.shards[5].owner == str(stranger) and found.shards[6].owner != str(second.owner)


async def offenders(database: Database) -> dict[str, int]:
    async with database.connection() as connection:
        findings = (await doctor.examine(connection)).findings
    return {name: sum(f.check.startswith(name + " ") for f in findings) for name in ("I2", "I17")}
