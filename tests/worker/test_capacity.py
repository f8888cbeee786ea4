"""Resources of a worker, and what running attempts leave."""

from __future__ import annotations

import asyncio
import os
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring.domain.job import Definition, NoopTask
from mainspring.domain.placement.resources import parse_amount, parse_amounts, show_amounts
from mainspring.domain.retry import RetryPolicy
from mainspring.worker.capacity import detect, parse_capacity, remaining
from mainspring.worker.executors import load_executors
from mainspring.worker.service import Worker, WorkerConfig
from mainspring.worker.transport.api_client import ApiAddress
from tests.conftest import Cluster

GI = 2**30


@pytest.mark.parametrize(
    ("name", "written", "amount"),
    [
        ("cpu", 2, 2000),
        ("cpu", "0.5", 500),
        ("cpu", "250m", 250),
        ("memory", "4Gi", 4 * GI),
        ("memory", "1G", 10**9),
        ("memory", 1024, 1024),
        ("disk", "1.5Ki", 1536),
        ("disk", "10 MB", 10**7),
        ("gpu", "2", 2),
        ("licence-a", 3, 3),
    ],
)
def test_amounts_as_people_write_them(name: str, written: str | int, amount: int) -> None:
    assert parse_amount(name, written) == amount


@pytest.mark.parametrize(
    ("name", "written"),
    [("cpu", "many"), ("cpu", "-1"), ("memory", "4Qi"), ("gpu", "1.5"), ("gpu", True), ("G P U", 1), ("cpu", 1e300)],
)
def test_amounts_that_make_no_sense(name: str, written: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_amount(name, written)


def test_zero_is_nothing_and_order_does_not_matter() -> None:
    assert parse_amounts({"gpu": 0, "memory": "1Ki", "cpu": 1}) == {"cpu": 1000, "memory": 1024}
    assert show_amounts({"cpu": 1500, "memory": 4 * GI, "gpu": 1}) == "cpu 1.5, memory 4Gi, gpu 1"


def test_what_the_machine_has(tmp_path: Path) -> None:
    found = detect(tmp_path)
    assert found["cpu"] == len(os.sched_getaffinity(0)) * 1000
    assert found["memory"] > 0 and found["disk"] > 0 and "gpu" not in found
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{GI}\n")
    assert {**detect(tmp_path), "disk": 0} == {**found, "gpu": 2, "memory": GI, "disk": 0}


def test_flags() -> None:
    assert parse_capacity("cpu=4, memory=8Gi,gpu=1") == {"cpu": 4000, "memory": 8 * GI, "gpu": 1}
    for wrong in ("cpu", "cpu=", "=4", "cpu=four"):
        with pytest.raises(ValueError, match=r"\w"):
            parse_capacity(wrong)


def test_what_is_left() -> None:
    def running(**resources: int) -> Definition:
        return Definition("j", NoopTask(), 1.0, RetryPolicy(), "at_least_once", resources=resources)

    assert remaining({"cpu": 4000, "gpu": 1}, [running(), running()]) is None
    assert remaining({"cpu": 4000, "gpu": 1}, [running(cpu=1500), running(cpu=500, gpu=1)]) == {"cpu": 2000, "gpu": 0}


async def test_a_real_worker_takes_what_fits_and_the_rest_when_there_is_room(cluster: Cluster, tmp_path: Path) -> None:
    """With two cores, two executions run at a time despite eight slots; an exclusive one runs alone."""
    queue, evidence = f"q{uuid4().hex}", tmp_path / "evidence"
    config = WorkerConfig(
        ApiAddress(cluster.url, cluster.worker_token),
        slots=8,
        name=queue,
        queues=(queue,),
        resources={"cpu": 2000},
        drain_s=5.0,
    )
    worker = Worker(config, load_executors())
    async with cluster.client() as client:
        demands: dict[str, dict[str, Any]] = {"1": {"resources": {"cpu": 1}}, "2": {"exclusive": True}}
        for name, demand in demands.items():
            script = f"echo +{name} >> {evidence}; sleep 0.1; echo -{name} >> {evidence}"
            shell = {"kind": "shell", "shell": True, "argv": [script]}
            await client.create_job({"name": f"{queue}-{name}", "task": shell, "queue": queue, **demand})
        ids = [(await client.trigger(f"{queue}-{name}")).execution_id for name in "1111122"]
        await worker.start()
        await worker.ready()
        try:
            ended = await asyncio.gather(*[client.wait(execution, timeout_s=60) for execution in ids])
        finally:
            await worker.drain()
            await worker.stop()
    assert {e.state for e in ended} == {"succeeded"}
    in_use = list(accumulate(int(line) for line in evidence.read_text().split()))
    assert max(in_use) == 2 and in_use[-1] == 0
