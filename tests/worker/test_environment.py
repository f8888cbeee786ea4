"""What jobs inherit from their worker, and where its token can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainspring.cli import serve
from mainspring.cli import worker as worker_command
from mainspring.client import AsyncClient
from mainspring.domain.errors import Invalid
from mainspring.worker.environment import INHERITED, check_names, function_environment, job_environment
from tests.conftest import Cluster
from tests.support.processes import children, until, until_async

pytestmark = pytest.mark.anyio

WORKER_ENV = {
    "PATH": "/bin", "LANG": "C", "AWS_REGION": "eu", "AWS_SECRET": "s", "DB_PASSWORD": "p", "PYTHONPATH": "/m",
    "MAINSPRING_TOKEN": "ms_x", "MAINSPRING_DATABASE_URL": "postgresql://u:p@h/d", "MAINSPRING_URL": "http://h",
}  # fmt: skip
FUNCTION = """
import os
import mainspring as ms

@ms.job(queue="environments")
def seen() -> dict:
    return dict(os.environ)
"""


def test_jobs_inherit_a_short_list_and_what_is_named() -> None:
    assert job_environment(environ=WORKER_ENV) == {"PATH": "/bin", "LANG": "C"}
    named = job_environment(["DB_PASSWORD", "ABSENT", "AWS_*"], environ=WORKER_ENV)
    assert set(named) == {"PATH", "LANG", "DB_PASSWORD", "AWS_REGION", "AWS_SECRET"}
    functions = function_environment(job_environment(environ=WORKER_ENV), environ=WORKER_ENV)
    assert set(functions) == {"PATH", "LANG", "PYTHONPATH"}


def test_credentials_of_the_installation_are_never_passed_on() -> None:
    for names in (["*"], ["MAINSPRING_*"]):
        passed = job_environment(names, environ=WORKER_ENV)
        assert "MAINSPRING_URL" in passed and not {"MAINSPRING_TOKEN", "MAINSPRING_DATABASE_URL"} & set(passed)


@pytest.mark.parametrize("name", ["MAINSPRING_TOKEN", "MAINSPRING_DATABASE_URL", "", "A=B", "A*B"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="--pass-env"):
        check_names([name])


def test_no_setting_of_server_or_worker_is_passed_on() -> None:
    """URLs of databases and engines contain passwords."""
    options = [option for command in (serve.serve, worker_command.worker) for option in command.params]
    settings = {name for option in options if isinstance(name := option.envvar, str)} - {"MAINSPRING_URL"}
    assert {"MAINSPRING_RESULTS", "MAINSPRING_REPLICA_URL", "MAINSPRING_DIRECT_DATABASE_URL"} <= settings
    settings |= {"OTEL_EXPORTER_OTLP_HEADERS"}
    environ = dict.fromkeys(settings, "redis://user:password@host") | {"MAINSPRING_URL": "http://localhost:7171"}
    assert set(job_environment(["*", "MAINSPRING_*", *settings], environ=environ)) == {"MAINSPRING_URL"}
    for name in settings:
        with pytest.raises(Invalid, match="credentials"):
            check_names([name])


# A worker process --------------------------------------------------------------------------------------------


@asynccontextmanager
async def working(
    cluster: Cluster, folder: Path, *options: str, env: dict[str, str] | None = None, fds: tuple[int, ...] = ()
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """`mainspring worker` with options before and after the name of the command."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
    command = [sys.executable, "-m", "mainspring.cli.main", "--url", cluster.url, *options]
    screen = folder / "screen.txt"
    process = started(command, folder, screen, clean | (env or {}), fds)
    try:
        await until(
            "its session", lambda: "session.started" in screen.read_text() or process.poll() is not None, within_s=60
        )
        assert process.poll() is None, screen.read_text()
        yield process
    finally:
        process.terminate()
        await until("its end", lambda: process.poll() is not None, within_s=60)


def started(
    command: list[str], folder: Path, screen: Path, env: dict[str, str], fds: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    with screen.open("wb") as out:
        return subprocess.Popen(
            command, cwd=folder, env=env, stdout=out, stderr=out, pass_fds=fds, start_new_session=True
        )


def open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return []


def visible(pid: int) -> bytes:
    """What /proc shows of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    except ProcessLookupError:
        return b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what the worker hides from other processes of its user")
@pytest.mark.parametrize("way", ["variable", "option", "file", "descriptor"])
async def test_the_token_is_not_visible_in_proc(cluster: Cluster, tmp_path: Path, way: str) -> None:
    token, file = cluster.worker_token, tmp_path / "token"
    file.write_text(token + "\n")
    file.chmod(0o600)
    descriptor = os.open(file, os.O_RDONLY)
    options: tuple[str, ...] = ("worker", "-q", "environments", "--log", "info")
    env: dict[str, str] = {}
    if way == "variable":
        env = {"MAINSPRING_TOKEN": token}
    elif way == "option":
        options = ("--token", token, *options)
    elif way == "file":
        options += ("--token-file", str(file))
    else:
        options += ("--token-fd", str(descriptor))
    async with working(cluster, tmp_path, *options, env=env, fds=(descriptor,)) as process:
        os.close(descriptor)
        assert token.encode() not in visible(process.pid)
        assert b"--log" in visible(process.pid), "the rest of the command line is unchanged"
        family = children(process.pid)
        assert family, "at least the guardian"
        for pid in family:
            assert token.encode() not in visible(pid)
            assert str(file) not in open_files(pid)


@pytest.mark.parametrize("passed", [(), ("--pass-env", "MY_*")], ids=["default", "passed"])
async def test_functions_and_programs_see_the_list_only(
    cluster: Cluster, tmp_path: Path, passed: tuple[str, ...]
) -> None:
    (tmp_path / "funcs.py").write_text(FUNCTION)
    env = {"MAINSPRING_TOKEN": cluster.worker_token, "MY_SECRET": "s3cret", "OTHER_SECRET": "0ther"}
    options = ("worker", "-q", "environments", "-m", "funcs.py", "--log", "info", *passed)
    async with working(cluster, tmp_path, *options, env=env), cluster.client() as client:
        found = await result_of(client, "seen")
        spec = {"name": "printed", "task": {"kind": "shell", "argv": ["env"]}, "queue": "environments"}
        if not passed:
            await client.create_job(spec)
        program = await client.wait((await client.trigger("printed")).execution_id, timeout_s=60)
        printed = "".join(c.text for c in (await client.logs(program.execution_id)).chunks)
        for text in (str(found), printed):
            assert ("s3cret" in text) == bool(passed)
            assert "0ther" not in text and cluster.worker_token not in text
        allowed = {*INHERITED, "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONHOME", "MY_SECRET"}
        assert not {name for name in found if not name.startswith("MAINSPRING_")} - allowed - {"LC_CTYPE"}


async def result_of(client: AsyncClient, job: str) -> dict[str, str]:
    async def declared() -> bool:
        return any(j.name == job for j in (await client.jobs()).items)

    await until_async("the declared job", declared, within_s=60)
    done = await client.wait((await client.trigger(job)).execution_id, timeout_s=60)
    assert done.state == "succeeded", done
    result: dict[str, str] = done.result
    return result


@pytest.mark.parametrize(
    ("mode", "words"), [(0o644, "chmod 600"), (None, "cannot read the token")], ids=["readable by all", "missing"]
)
def test_an_unsafe_or_missing_token_file_is_refused(tmp_path: Path, mode: int | None, words: str) -> None:
    file = tmp_path / "token"
    if mode is not None:
        file.write_text("ms_x")
        file.chmod(mode)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
    command = [sys.executable, "-m", "mainspring.cli.main", "worker", "--token-file", str(file)]
    ended = subprocess.run(command, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and words in ended.stderr and "Traceback" not in ended.stderr
