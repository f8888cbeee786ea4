"""Python executions go only to workers that have their function, by every way an execution can start."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.dispatch.assign_lines import name_functions
from mainspring.domain.errors import Invalid
from mainspring.store.db import Connection
from mainspring.worker.transport.api_client import Refused, SessionEnded
from tests.conftest import Cluster
from tests.support.processes import until_async
from tests.support.remote_worker import Remote, remote
from tests.support.worker_program import worker

pytestmark = pytest.mark.anyio

EACH = 30


@pytest.fixture
def queue() -> str:
    return f"q{uuid4().hex}"


async def create(client: AsyncClient, queue: str, function: str, **more: object) -> str:
    name = f"{function.replace(':', '.')}-{uuid4().hex}"
    task = {"kind": "python", "function": function}
    await client.create_job({"name": name, "task": task, "queue": queue, "retries": {"max": 0}, **more})
    return name


async def state(worker: Remote, *functions: str, **modules: str) -> None:
    await worker.link.state_functions(
        wire.StateFunctions(session_id=worker.session_id, functions=list(functions), modules=modules)
    )


def python_worker(cluster: Cluster, queue: str, name: str = "") -> AbstractAsyncContextManager[Remote]:
    return remote(cluster, name=name or queue, queue=queue, kinds=["python"], takes=["functions"])


@pytest.mark.parametrize("transport", [(), ("--poll",)])
async def test_two_services_on_one_queue_get_their_own_functions_only(
    cluster: Cluster, tmp_path: Path, queue: str, transport: tuple[str, ...]
) -> None:
    """Single submissions, batches and steps of runs: no execution needs a second attempt."""
    (tmp_path / "shop.py").write_text("def pay():\n    return 'paid'\n")
    (tmp_path / "mail.py").write_text("def send():\n    return 'sent'\n")
    options = ("-q", queue, "--slots", "4", *transport)
    async with (
        worker(tmp_path, cluster.url, cluster.worker_token, "-m", "shop", "--name", f"{queue}-shop", *options),
        worker(tmp_path, cluster.url, cluster.worker_token, "-m", "mail", "--name", f"{queue}-mail", *options),
        cluster.client() as client,
    ):
        pay, send = await create(client, queue, "shop:pay"), await create(client, queue, "mail:send")
        singles = [(await client.trigger(name)).execution_id for _ in range(EACH) for name in (pay, send)]
        many = await client.submit_many(wire.BatchItem(job=name) for _ in range(EACH) for name in (pay, send))
        for number, execution_id in enumerate([*singles, *many]):
            done = await client.wait(execution_id, timeout_s=60)
            assert (done.state, done.attempt) == ("succeeded", 1), done.error
            assert (done.result, done.worker) == (
                ("sent", f"{queue}-mail") if number % 2 else ("paid", f"{queue}-shop")
            )
        steps = {
            f"s{n}": {"task": {"kind": "python", "function": ("shop:pay", "mail:send")[n % 2]}, "queue": queue,
                      "needs": [f"s{n - 1}"] if n else []}
            for n in range(6)
        }  # fmt: skip
        flow = {"name": queue, "steps": steps, "defaults": {"retries": {"max": 0}}}
        await client.apply_workflow(flow)
        run = await client.start_run(queue)
        done_run = await _ended(client, run)
        assert done_run.state == "succeeded", done_run.reason


async def _ended(client: AsyncClient, run: wire.Run) -> wire.Run:
    async def has_ended() -> bool:
        return (await client.run(run.run_id)).finished_at is not None

    await until_async("the run", has_ended, within_s=60)
    return await client.run(run.run_id)


async def test_a_function_that_no_worker_has_waits_and_why_says_what_to_do(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, python_worker(cluster, queue, "shop-1") as near:
        await state(near, "shop:pay", "shop:refund")
        name = await create(client, queue, "shop:play")
        waiting = (await client.trigger(name)).execution_id
        assert (await near.poll(wait_s=0.2)).executions == []
        (reason,) = (await client.why(waiting)).reasons
        assert reason.code == "no_function"
        assert reason.message == (
            f"no worker of the queue {queue} has the function 'shop:play' (did you mean 'shop:pay'?):"
            f" start a worker that has it (mainspring worker -m shop -q {queue}), or correct task.function"
        )
        assert (await client.job(name)).state == "active"
        async with remote(cluster, name="far-1", queue=f"{queue}-far", kinds=["python"], takes=["functions"]) as far:
            await state(far, "shop:play")
            (reason,) = (await client.why(waiting)).reasons
            assert f"far-1 has it, but serves {queue}-far" in reason.message and f"-q {queue}" in reason.message
        await state(near, "shop:play")
        assert await near.ids() == [waiting]


async def test_saving_a_job_whose_function_no_worker_has_warns(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, python_worker(cluster, queue) as near:
        await state(near, "shop:pay")
        task = {"kind": "python", "function": "bank:transfer"}
        (warning,) = (await client.create_job({"name": queue, "task": task, "queue": queue})).warnings
        assert "has the function 'bank:transfer'" in warning


async def test_a_worker_gets_nothing_before_it_has_stated_its_functions(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, python_worker(cluster, queue) as near:
        waiting = (await client.trigger(await create(client, queue, "shop:pay"))).execution_id
        assert await near.ids(wait_s=0.2) == []
        polling = asyncio.create_task(near.ids())
        await state(near, "shop:pay", shop="2.0")  # while the poll is open
        assert await polling == [waiting]
        (shown,) = [w for w in (await client.workers()).items if w.name == queue]
        assert (shown.functions, shown.function_count, shown.modules) == (["shop:pay"], 1, {"shop": "2.0"})


async def test_a_worker_of_an_older_version_gets_any_function(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, remote(cluster, queue=queue, name=queue, kinds=["python"]) as older:
        waiting = (await client.trigger(await create(client, queue, "shop:pay"))).execution_id
        assert await older.ids() == [waiting]
        (shown,) = [w for w in (await client.workers()).items if w.name == queue]
        assert shown.functions is None


async def test_what_a_worker_no_longer_has_goes_to_others(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client, python_worker(cluster, queue) as first:
        await state(first, "shop:pay")
        assert await first.ids(wait_s=0.1) == []
        await state(first, "shop:refund")
        waiting = (await client.trigger(await create(client, queue, "shop:pay"))).execution_id
        assert await first.ids(wait_s=0.2) == []
        async with python_worker(cluster, queue, f"{queue}-2") as second:
            await state(second, "shop:pay")
            assert await second.ids() == [waiting]


async def test_files_that_change_change_what_the_worker_gets(cluster: Cluster, tmp_path: Path, queue: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text("def pay():\n    return 1\n")
    options = ("-m", "shop", "--reload", "-q", queue, "--name", queue)
    async with worker(tmp_path, cluster.url, cluster.worker_token, *options), cluster.client() as client:
        pay, refund = await create(client, queue, "shop:pay"), await create(client, queue, "shop:refund")
        assert (await client.wait((await client.trigger(pay)).execution_id, timeout_s=60)).state == "succeeded"
        waiting = (await client.trigger(refund)).execution_id
        assert [r.code for r in (await client.why(waiting)).reasons] == ["no_function"]
        file.write_text("def refund():\n    return 2\n")
        done = await client.wait(waiting, timeout_s=60)
        assert (done.state, done.attempt, done.result) == ("succeeded", 1, 2)
        gone = (await client.trigger(pay)).execution_id
        assert [r.code for r in (await client.why(gone)).reasons] == ["no_function"]
        await client.cancel(gone)


async def test_a_statement_is_checked_like_every_message_of_a_session(cluster: Cluster, queue: str) -> None:
    async with python_worker(cluster, queue) as one:
        with pytest.raises(Refused, match="not a function"):
            await state(one, "os.system('x')")
        with pytest.raises(Refused):
            await state(one, *(f"m:f{n}" for n in range(2001)))
        with pytest.raises((SessionEnded, Refused)):
            await one.link.state_functions(wire.StateFunctions(session_id=uuid4(), functions=[]))
    with pytest.raises(SessionEnded):
        await state(one, "shop:pay")


async def test_equal_workers_share_one_statement(cluster: Cluster, queue: str) -> None:
    async with python_worker(cluster, queue, f"{queue}-1") as a, python_worker(cluster, queue, f"{queue}-2") as b:
        await state(a, f"{queue}:f")
        await state(b, f"{queue}:f")
        async with cluster.database.connection() as connection:
            rows = await connection.fetchval("SELECT count(*) FROM function_sets WHERE functions = $1", [f"{queue}:f"])
    assert rows == 1


async def test_jobs_and_steps_that_an_older_version_saved_get_their_function(cluster: Cluster, queue: str) -> None:
    async with cluster.client() as client:
        name = await create(client, queue, "shop:pay", labels={"zone": "eu"})
        task = {"kind": "python", "function": "shop:refund"}
        await client.apply_workflow({"name": queue, "steps": {"a": {"task": task, "queue": queue}}})
        async with cluster.database.connection() as connection:
            await _forget_functions(connection, queue)
            assert await _demands(connection, queue) == {
                '{"kind":"python","labels":{"zone":"eu"}}',
                '{"kind":"python"}',
            }
        await name_functions(cluster.database)
        async with cluster.database.connection() as connection:
            assert await _demands(connection, queue) == {
                '{"kind":"python shop:pay","labels":{"zone":"eu"}}',
                '{"kind":"python shop:refund"}',
            }
        job = await client.job(name)
        assert job.version == 1


async def _forget_functions(connection: Connection, queue: str) -> None:
    """Write the lines of a queue as an older version has them."""
    for line_id, demand in await connection.fetch("SELECT line_id, demand FROM lines WHERE queue = $1", queue):
        rest = demand.partition('",')[2]
        older = '{"kind":"python",' + rest if rest else '{"kind":"python"}'
        if demand.startswith('{"kind":"python '):
            await connection.execute("UPDATE lines SET demand = $2 WHERE line_id = $1", line_id, older)


async def _demands(connection: Connection, queue: str) -> set[str]:
    rows = await connection.fetch(
        """SELECT demand FROM lines WHERE queue = $1 AND demand LIKE '%python%' AND line_id IN
           (SELECT line_id FROM jobs UNION SELECT line_id FROM workflow_steps)""",
        queue,
    )
    return {r["demand"] for r in rows}


def test_the_name_of_a_function_is_bounded() -> None:
    from mainspring.domain.job import JobSpec, check
    from mainspring.domain.task import PythonTask

    with pytest.raises(Invalid, match="at most 256"):
        check(JobSpec(name="a", task=PythonTask(function="m:" + "f" * 300)))
