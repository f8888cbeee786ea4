"""effectively_once on real workers: one effect per execution, whichever process is killed."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.embedded.server import EmbeddedServer
from mainspring.sdk.transaction import create_marker_table
from tests.conftest import Cluster
from tests.support.fleet import ROUNDS
from tests.support.processes import children, command_line, until, until_async
from tests.support.seeds import SEED
from tests.support.worker_program import Program, worker

pytestmark = pytest.mark.anyio

APP = "tests.worker.app.effects"
EXECUTIONS = 100 if ROUNDS == 1 else 1000


@pytest.fixture(scope="module")
async def user_dsn(postgres: EmbeddedServer) -> AsyncIterator[str]:
    """The user's own database, unknown to the server."""
    name = f"user_{uuid4().hex}"
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    dsn = postgres.dsn_for(name)
    connection = await asyncpg.connect(dsn)
    created = create_marker_table(connection)
    assert created is not None
    await created
    await connection.execute("CREATE TABLE effects (execution_id text NOT NULL, attempt int NOT NULL)")
    yield dsn
    await connection.close()


async def effects(dsn: str, ids: list[str]) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT execution_id FROM effects WHERE execution_id = ANY ($1)", ids)
        return [r["execution_id"] for r in rows]
    finally:
        await connection.close()


def job(function: str, **more: Any) -> dict[str, Any]:
    task = {"kind": "python", "function": f"{APP}:{function}"}
    spec = {"name": f"job-{uuid4()}", "task": task, "delivery": "effectively_once", "retries": {"max": 9, "base": 0}}
    spec |= {"allow_plaintext": ["params.dsn"]} if function != "careless" else {}
    return spec | {"params": {"dsn": {}, "dies": {"default": ""}} if function == "pay" else {}} | more


async def final(client: AsyncClient, spec: dict[str, Any], params: dict[str, Any] | None) -> wire.Execution:
    made = await client.create_job(spec)
    execution = await client.trigger(made.name, wire.RunNow(params=params))
    return await client.wait(execution.execution_id, timeout_s=60)


@pytest.mark.parametrize(("dies", "paid_by"), [("", 1), ("before", 2), ("after", 1), ("raises", 1)])
async def test_the_effect_is_there_once_wherever_the_runner_dies(
    cluster: Cluster, user_dsn: str, dies: str, paid_by: int
) -> None:
    async with cluster.client() as client, cluster.worker(modules=(APP,)):
        done = await final(client, job("pay"), {"dsn": user_dsn, "dies": dies})
    assert (done.state, done.result) == ("succeeded", {"paid_by": paid_by})
    assert done.attempt == (2 if dies else 1)
    assert await effects(user_dsn, [str(done.execution_id)]) == [str(done.execution_id)]


@pytest.mark.fault
async def test_a_worker_killed_after_the_commit_leaves_nothing_to_do(
    cluster: Cluster, user_dsn: str, tmp_path: Path
) -> None:
    """The second attempt finds the effects committed and ends with the first one's result."""
    async with cluster.client() as client:
        made = await client.create_job(job("pay_and_wait", params={"dsn": {}, "folder": {}}))
        root = str(Path(__file__).parents[2])
        async with worker(tmp_path, cluster.url, cluster.worker_token, "-m", APP, path=root) as first:
            params = {"dsn": user_dsn, "folder": str(tmp_path)}
            execution = await client.trigger(made.name, wire.RunNow(params=params))
            await until("the commit", lambda: (tmp_path / "committed").exists(), within_s=30)
            first.send(signal.SIGKILL)
            async with cluster.worker(modules=(APP,)):
                done = await client.wait(execution.execution_id, timeout_s=60)
    assert (done.state, done.attempt, done.result) == ("succeeded", 2, "paid")
    assert [a.outcome for a in done.attempts] == ["lost", "succeeded"]
    assert len(await effects(user_dsn, [str(done.execution_id)])) == 1


async def test_asynchronous_functions_too(cluster: Cluster, user_dsn: str) -> None:
    async with cluster.client() as client, cluster.worker(modules=(APP,)):
        done = await final(client, job("pay_async", params={"dsn": {}}), {"dsn": user_dsn})
    assert (done.state, done.attempt, done.result) == ("succeeded", 2, {"paid_by": 1})
    assert len(await effects(user_dsn, [str(done.execution_id)])) == 1


async def test_a_function_that_commits_nothing_is_told_so_and_not_tried_again(cluster: Cluster) -> None:
    async with cluster.client() as client, cluster.worker(modules=(APP,)):
        done = await final(client, job("careless"), None)
        assert (done.state, done.attempt) == ("failed", 1)
        assert done.error is not None and "with ms.transaction(connection)" in done.error
        kept = await final(client, job("careless", delivery="at_least_once"), None)
    assert (kept.state, kept.result) == ("succeeded", "done")


@pytest.mark.fault("F23")
@pytest.mark.requirement(40)
async def test_every_execution_has_one_effect_while_workers_and_runners_are_killed(
    cluster: Cluster, user_dsn: str, tmp_path: Path
) -> None:
    """After every few effects a worker or one of its runners is killed, often just after a commit."""
    rng = random.Random(SEED)
    root = str(Path(__file__).parents[2])
    options = ("-m", APP, "--slots", "3")
    ids: list[str] = []
    killed = {"worker": 0, "runner": 0}

    async def reached(n: int) -> bool:
        return len(await effects(user_dsn, ids)) >= n

    async with cluster.client() as client:
        made = await client.create_job(job("pay", retries={"max": 1000, "base": 0}))
        items = [wire.BatchItem(job=made.name, params={"dsn": user_dsn}) for _ in range(EXECUTIONS)]
        ids += [str(item.execution_id) for item in (await client.submit(items)).items]
        workers: list[Program] = []
        try:
            for _ in range(2):
                workers.append(Program(tmp_path, cluster.url, cluster.worker_token, *options, path=root))
                await workers[-1].up()
            goal = 0
            while (goal := goal + rng.randint(3, 12)) < EXECUTIONS:
                await until_async(f"{goal} effects", lambda goal=goal: reached(goal), within_s=60)  # type: ignore[misc]
                victim = rng.randrange(2)
                runners = [pid for pid in children(workers[victim].process.pid) if "runner" in command_line(pid)]
                if runners and rng.random() < 0.6:
                    os.kill(rng.choice(runners), signal.SIGKILL)
                    killed["runner"] += 1
                    continue
                workers[victim].send(signal.SIGKILL)
                await workers[victim].ended()
                killed["worker"] += 1
                workers[victim] = Program(tmp_path, cluster.url, cluster.worker_token, *options, path=root)
                await workers[victim].up()

            async def settled() -> bool:
                async with cluster.database.connection() as connection:
                    live = "SELECT count(*) FROM executions WHERE job_id = $1"
                    return not await connection.fetchval(live, made.job_id)

            await until_async("the end of all executions", settled, within_s=120)
        finally:
            for program in workers:
                if not program.dead():
                    program.send(signal.SIGKILL)
                await program.ended()
        states = [e.state for e in (await client.executions(job=made.name, limit=500)).items]
    found = await effects(user_dsn, ids)
    assert killed["worker"] and killed["runner"], killed
    assert sorted(found) == sorted(ids), f"{len(found)} effects of {len(ids)} executions; seed {SEED}, killed {killed}"
    assert set(states) == {"succeeded"}, SEED
