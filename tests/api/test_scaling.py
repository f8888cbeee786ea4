"""Scaling figures for an autoscaler, and reserved capacity."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.clock import instant
from mainspring.domain.errors import Invalid
from mainspring.store.db import database_now_ms
from tests.conftest import Cluster
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


@pytest.mark.requirement(85)
async def test_depth_lag_and_use_are_told_and_capacity_is_kept(cluster: Cluster) -> None:
    queue, urgent = f"q{uuid4().hex}", f"u{uuid4().hex}"
    async with (
        cluster.client() as client,
        remote(cluster, name=queue, queue=queue, queues=[queue, urgent], slots=4) as worker,
    ):
        async with cluster.database.connection() as connection:
            now = instant(int(await database_now_ms(connection)))
        await client.add_reservation(
            wire.NewReservation(name=queue, start_at=now, end_at=now + timedelta(days=1), slots=1, queue=urgent)
        )
        for name in (queue, urgent):
            await client.create_job({"name": name, "task": {"kind": "noop"}, "queue": name})
        for _ in range(10):
            await client.trigger(queue)
        given: list[wire.Assignment] = []
        while len(given) < 3:
            given += (await worker.poll(free=4 - len(given))).executions
        assert not (await worker.poll(free=1, wait_s=0.5)).executions, "the last slot is kept"
        load = (await client.scaling()).queues[queue]
        assert (load.depth, load.running, load.workers, load.slots) == (7, 3, 1, 4)
        assert (load.utilization, load.wanted_slots, load.oldest_s > 0) == (0.75, 15, True)
        assert (await client.scaling(target=1.0)).queues[queue].wanted_slots == 10
        assert (await client.scaling()).queues[urgent].reserved == 1
        with pytest.raises(Invalid):
            await client.scaling(target=7.0)
        async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False) as http:
            answer = await http.get("/metrics", headers={"Authorization": f"Bearer {cluster.token}"})
        for series in (
            f'mainspring_job_queue_size{{priority="5",queue="{queue}"}} 7.0',
            f'mainspring_queue_running{{queue="{queue}"}} 3.0',
            f'mainspring_queue_slots{{queue="{queue}"}} 4.0',
            f'mainspring_queue_oldest_seconds{{queue="{queue}"}}',
            "mainspring_worker_utilization ",
        ):
            assert series in answer.text
        at_once = await client.trigger(urgent)
        assert await worker.ids(free=1) == [at_once.execution_id]
