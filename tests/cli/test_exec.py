"""`exec`: a command runs here and is reported as an execution, with a real server or without one."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.api_jobs import output, script
from tests.support.processes import free_port, until_async

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(sys.executable).with_name("mainspring"))


async def start(folder: Path, url: str, token: str, *words: str) -> asyncio.subprocess.Process:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "MAINSPRING_URL": url, "MAINSPRING_TOKEN": token}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        PROGRAM, "exec", *words, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )


async def run(folder: Path, url: str, token: str, *words: str, input: bytes = b"") -> tuple[int | None, bytes, bytes]:
    process = await start(folder, url, token, *words)
    out, err = await process.communicate(input)
    return process.returncode, out, err


async def reported(client: AsyncClient, job: str) -> str:
    (found,) = (await client.history(job)).items
    return found.state


async def test_a_success_is_reported_with_its_output(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script("true"))
        words = (job.name, "--", "sh", "-c", "cat; echo problem >&2")
        code, out, err = await run(tmp_path, cluster.url, cluster.token, *words, input=b"from stdin\n")
        assert (code, out, err) == (0, b"from stdin\n", b"problem\n")
        (found,) = (await client.history(job.name)).items
        assert (found.state, found.exit_code, found.trigger) == ("succeeded", 0, "manual")
        assert found.worker is not None
        assert found.worker.startswith("exec-")
        assert await output(client, found) == "from stdin\n"
        assert await output(client, found, "stderr") == "problem\n"
        assert (await client.doctor()).findings == []


async def test_a_failure_keeps_its_exit_code_and_is_not_retried(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script("true", retries={"max": 3}))
        words = (job.name, "--", "sh", "-c", "echo disk full >&2; exit 3")
        code, _, err = await run(tmp_path, cluster.url, cluster.worker_token, *words)
        assert (code, err) == (3, b"disk full\n")
        (found,) = (await client.history(job.name)).items
        assert (found.state, found.exit_code, found.error) == ("failed", 3, "exit code 3\ndisk full")
        assert (await client.dead_letter(found.execution_id)).state == "open"


async def test_the_end_of_a_long_output_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script("true"))
        words = (job.name, "--", "sh", "-c", "seq 100000")
        code, out, _ = await run(tmp_path, cluster.url, cluster.token, *words)
        assert code == 0
        assert out.endswith(b"\n100000\n")
        (found,) = (await client.history(job.name)).items
        tail = await output(client, found)
        assert len(tail) == 64_000
        assert out.decode().endswith(tail)


async def test_it_is_visible_while_it_runs_and_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script("true"))
        process = await start(tmp_path, cluster.url, cluster.token, job.name, "--", "tail", "-f", "/dev/null")

        async def runs() -> bool:
            found = (await client.history(job.name)).items
            return bool(found) and found[0].state == "running"

        await until_async("it runs", runs, within_s=30)
        await client.cancel((await client.history(job.name)).items[0].execution_id)
        await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 128 + signal.SIGTERM
        assert await reported(client, job.name) == "cancelled"


async def test_signals_reach_the_command_and_its_end_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.client() as client:
        job = await client.create_job(script("true"))
        text = "trap 'echo bye; exit 7' TERM; echo ready; while :; do read line || exit 9; done"
        process = await start(tmp_path, cluster.url, cluster.token, job.name, "--", "sh", "-c", text)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        out, _ = await process.communicate()
        assert (process.returncode, out) == (7, b"bye\n")
        assert await reported(client, job.name) == "failed"


@pytest.mark.parametrize(
    ("command", "code"), [(("sh", "-c", "echo done; exit 5"), 5), (("true",), 0), (("/nowhere/x",), 127), (("/",), 126)]
)
async def test_without_a_server_the_command_runs_and_the_exit_code_is_its_own(
    tmp_path: Path, command: tuple[str, ...], code: int
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    got, out, err = await run(tmp_path, url, "ms_x", "backup", "--", *command)
    assert got == code
    assert (b"done\n" in out) == (code == 5)
    assert b"not reported" in err
    got, _, err = await run(tmp_path, url, "ms_x", "backup", "--quiet", "--", *command)
    assert got == code
    assert b"not reported" not in err


async def test_an_unknown_job_or_token_does_not_stop_the_command(cluster: Cluster, tmp_path: Path) -> None:
    code, out, err = await run(tmp_path, cluster.url, cluster.token, "nobody-has-this", "--", "echo", "hi")
    assert (code, out) == (0, b"hi\n")
    assert b"not reported: there is no job 'nobody-has-this'" in err
    code, out, err = await run(tmp_path, cluster.url, "ms_wrong", "x", "--", "echo", "hi")
    assert (code, out) == (0, b"hi\n")
    assert b"not reported" in err


async def test_a_worker_token_reports_only_for_queues_that_it_grants(cluster: Cluster, tmp_path: Path) -> None:
    from mainspring import wire

    async with cluster.client() as client:
        token = await client.issue_worker_token(wire.NewWorkerToken(name="cron", queues=["exec", "nightly"]))
        short = await client.create_job(script("true", queue="short"))
        nightly = await client.create_job(script("true", queue="nightly"))
        code, _, err = await run(tmp_path, cluster.url, token.token, short.name, "--", "true")
        assert code == 0
        assert b"not reported" in err
        assert b"short" in err
        assert (await client.history(short.name)).items == []
        code, _, err = await run(tmp_path, cluster.url, token.token, nightly.name, "--", "true")
        assert (code, err) == (0, b"")
        assert await reported(client, nightly.name) == "succeeded"
