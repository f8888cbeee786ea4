"""Jobs declared in code are registered once, however many workers declare them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import Forbidden, Invalid
from mainspring.runner_protocol import BadModule
from mainspring.worker.python import loader
from mainspring.worker.transport.api_client import ApiAddress, ApiClient
from tests.conftest import Cluster
from tests.support.attempts import Registry
from tests.support.processes import until
from tests.support.worker_program import Program, worker

pytestmark = pytest.mark.anyio

APP = "tests.worker.app.jobs"


def source(name: str, *, returns: int = 1, schedule: str = "0 2 * * *", more: str = "") -> str:
    return (
        f"import mainspring as ms\n\n@ms.job(name={name!r}, schedule={schedule!r}, queue={name!r})\n"
        f"def work(day: ms.FireDate, n: int = {returns}) -> int:\n    return n\n{more}"
    )


def unique() -> str:
    return f"job-{uuid4().hex}"


async def declared(cluster: Cluster, *specs: dict[str, Any]) -> list[wire.Declared]:
    import msgspec

    from mainspring.domain.job import JobSpec

    link = ApiClient(ApiAddress(cluster.url, cluster.worker_token))
    try:
        return (await link.declare([msgspec.convert(spec, JobSpec) for spec in specs])).jobs
    finally:
        await link.close()


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "task": {"kind": "python", "function": "app:f"}, "schedule": {"every": "1h"}, **more}


async def test_what_is_unchanged_gets_no_new_version(cluster: Cluster) -> None:
    name = unique()
    params = {"n": {"type": "number", "default": 1.5}}
    first = await asyncio.gather(*(declared(cluster, spec(name, params=params)) for _ in range(20)))
    assert sorted(found.change for (found,) in first) == ["created"] + ["unchanged"] * 19
    async with cluster.client() as client:
        await client.pause_job(name, "for now")
        changed = await asyncio.gather(*(declared(cluster, spec(name, queue="long")) for _ in range(20)))
        assert sorted(found.change for (found,) in changed) == ["unchanged"] * 19 + ["updated"]
        job = await client.job(name)
        versions = await client.versions(name)
    assert (job.version, job.spec.queue, job.state) == (2, "long", "paused"), "code does not resume it"
    assert [v.version for v in versions.items] == [2, 1]


async def test_code_never_takes_over_what_a_person_made(cluster: Cluster) -> None:
    name = unique()
    async with cluster.client() as client:
        await client.create_job({"name": name, "task": {"kind": "noop"}})
        other = unique()
        mine, fine = await declared(cluster, spec(name), spec(other))
        assert (mine.change, fine.change) == ("refused", "created")
        assert mine.problem is not None and "that was not declared by code" in mine.problem
        assert (await client.job(name)).version == 1


async def test_a_workers_token_declares_functions_and_nothing_else(cluster: Cluster) -> None:
    shell = {"name": unique(), "task": {"kind": "shell", "argv": ["rm"]}}
    past = spec(unique(), schedule={"at": "2020-01-01T00:00:00Z"})
    refused, late = await declared(cluster, shell, past)
    assert (refused.change, refused.problem) == ("refused", "a worker can only declare jobs that call functions")
    assert late.change == "refused" and late.problem
    async with AsyncClient(cluster.url, cluster.worker_token) as client:
        with pytest.raises(Forbidden):
            await client.create_job(spec(unique()))


@pytest.mark.requirement(49)
async def test_a_decorated_function_runs_by_name_on_a_worker_that_loaded_it(cluster: Cluster, tmp_path: Path) -> None:
    name = unique()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "mine.py").write_text(source(name, returns=7))
    options = ("-m", "jobs", "-q", name, "--name", name)
    async with cluster.client() as client:
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await program.says(f"loaded 1 job: {name} (created)")
            job = await client.job(name)
            assert job.spec.schedule is not None and job.next_fire_at is not None
            run = await client.trigger(name, wire.RunNow(params={"n": 9}))
            done = await client.wait(run.execution_id, timeout_s=60)
            assert (done.state, done.result) == ("succeeded", 9)
            plain = await client.wait((await client.trigger(name)).execution_id, timeout_s=60)
            assert plain.result == 7
            with pytest.raises(Invalid, match="'n' is an integer, and string was given"):
                await client.trigger(name, wire.RunNow(params={"n": "x"}))
        assert (await client.job(name)).state == "active", "a schedule outlives its process"
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await program.says(f"loaded 1 job: {name} (unchanged)")
        assert (await client.job(name)).version == 1


async def test_a_module_with_a_mistake_ends_the_worker_with_file_and_line(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for text, says in (
        ("x = 1\ny = (\n", f"{file}:2: SyntaxError: '(' was never closed"),
        ("import os\nos.nothing\n", f"{file}:2: AttributeError: module 'os' has no attribute 'nothing'"),
        (source("two words"), f"{file}:3: the job 'two words': /name: 'two words' is not a job name"),
        (source(unique(), schedule="61 * * * *"), "61"),
    ):
        file.write_text(text)
        program = Program(tmp_path, cluster.url, cluster.worker_token, "-m", str(file))
        if "61" in says:  # schedules are checked by the server
            await program.says("was refused")
            program.process.kill()
        assert await program.ended() != 0
        assert says in program.text(), program.text()
    nowhere = Program(tmp_path, cluster.url, cluster.worker_token, "-m", "no.such.module")
    assert await nowhere.ended() == 6
    assert "no.such.module: ModuleNotFoundError: No module named 'no'" in nowhere.text()


async def test_files_are_loaded_again_when_they_change_and_a_bad_one_changes_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    name = unique()
    file = tmp_path / "jobs" / "mine.py"
    options = ("-m", "./jobs", "--reload", "-q", name, "--name", name)

    async def result(client: AsyncClient) -> Any:
        run = await client.trigger(name)
        return (await client.wait(run.execution_id, timeout_s=60)).result

    async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program, cluster.client() as client:
        file.parent.mkdir()
        file.write_text(source(name, returns=1))
        await program.says(f"loaded 1 job: {name} (created)")
        assert await result(client) == 1
        file.write_text(source(name, returns=1) + "\nraise SystemExit\n")
        await program.says("mine.py:7: SystemExit:  (the previous version stays in use)")
        assert await result(client) == 1
        file.write_text(source(name, returns=2))
        await program.says(f"loaded 1 job: {name} (updated)")
        assert (await client.job(name)).version == 2
        assert await result(client) == 2


async def test_a_module_that_never_finishes_loading_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "LOAD_S", 1.0)
    file = tmp_path / "endless.py"
    file.write_text("import signal\nsignal.pause()\n")
    registry = Registry()
    with pytest.raises(BadModule, match="not loaded after 1 s"):
        await loader.read_declared([str(file)], registry, {})
    assert registry.groups == set()


async def test_a_function_waits_for_a_worker_with_modules_and_why_says_so(cluster: Cluster) -> None:
    name = unique()
    async with cluster.client() as client, cluster.worker(queues=(name,)):
        await client.create_job(spec(name, queue=name, schedule=None, retries={"max": 0}))
        waiting = await client.trigger(name)
        (reason,) = (await client.why(waiting.execution_id)).reasons
        await client.cancel(waiting.execution_id, reason="nobody can run it")
    assert reason.code == "no_fit" and "python" in reason.message


@pytest.mark.fault
async def test_a_killed_workers_functions_end_with_it(cluster: Cluster, tmp_path: Path) -> None:
    from tests.support.processes import alive

    name = unique()
    pids = tmp_path / "pids"
    async with cluster.client() as client:
        task = {"kind": "python", "function": f"{APP}:hang", "args": {"file": str(pids)}}
        await client.create_job({"name": name, "task": task, "queue": name, "retries": {"max": 0}})
        root = str(Path(__file__).parents[3])
        options = ("-m", APP, "-q", name, "--name", name)
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options, path=root) as program:
            run = await client.trigger(name)
            await until("the function", pids.exists, within_s=60)
            program.process.kill()
            done = await client.wait(run.execution_id, timeout_s=20)
            assert done.state == "lost"
            await until("the end", lambda: not any(alive(int(p)) for p in pids.read_text().split()), within_s=20)


async def test_a_refused_job_is_registered_by_itself_once_its_name_is_free(cluster: Cluster, tmp_path: Path) -> None:
    name = unique()
    file = tmp_path / "mine.py"
    file.write_text(source(name))
    async with cluster.client() as client:
        await client.create_job({"name": name, "task": {"kind": "noop"}})
        options = ("-m", str(file), "-q", name, "--name", name)
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await program.says(f"the job {name!r} was refused: there is a job")
            await client.delete_job(name)
            await program.says(f"loaded 1 job: {name} (created)")
            assert program.text().count("was refused") == 1, "a retry repeats no message"
        assert (await client.job(name)).spec.kind == "python"


async def test_a_load_that_undoes_an_edit_says_so(cluster: Cluster, tmp_path: Path) -> None:
    name = unique()
    file = tmp_path / "mine.py"
    file.write_text(source(name))
    options = ("-m", str(file), "-q", name, "--name", name)
    async with cluster.client() as client:
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await program.says(f"loaded 1 job: {name} (created)")
        await client.patch_job(name, {"priority": 9})
        async with worker(tmp_path, cluster.url, cluster.worker_token, *options) as program:
            await program.says(f"loaded 1 job: {name} (updated)")
            await program.says(f"mine.py:3: the job {name!r}: replaced version 2, an edit by test admin")
