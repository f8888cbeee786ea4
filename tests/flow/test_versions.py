"""Programs of an earlier version beside this one: workers and servers can be upgraded one after the other.

The earlier program comes from the project's own history, so these tests need a clone that has it.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.embedded.server import EmbeddedServer
from tests.conftest import clone, started
from tests.support.processes import free_port, until_async

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
BEFORE_STREAMS = "a3359f5"
"""The last commit whose workers and servers know only long polls."""
SINGLE = 30
FUNCTIONS = "def double(n: int) -> int:\n    return 2 * n\n"
TOKENS = """
import asyncio, sys
from mainspring.api.auth import issue_token
from mainspring.store.db import Database
from mainspring.store.migrate import migrate

async def main(url):
    await migrate(url)
    async with Database(url, size=1) as database, database.connection() as connection:
        for scope in ("admin", "worker"):
            print(await issue_token(connection, tenant=1, name=f"test {scope}", scopes=(scope,)))

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source folder of the earlier version."""
    archive = subprocess.run(["git", "archive", BEFORE_STREAMS, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this checkout does not have the commit {BEFORE_STREAMS}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


@asynccontextmanager
async def program(source: Path | None, *argv: str, **env: str) -> AsyncIterator[None]:
    """A running `mainspring`, of the earlier version if its source folder is given."""
    path = {"PYTHONPATH": str(source)} if source is not None else {}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mainspring.cli.main", *argv, "--log", "error", env={**os.environ, **path, **env}
    )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def use(client: AsyncClient) -> None:
    """Run tasks alone and in numbers, with output, a result and a failure."""
    tasks = {
        "noop": {"kind": "noop"},
        "shell": {"kind": "shell", "argv": ["echo", "printed"]},
        "function": {"kind": "python", "function": "functions:double"},
        "failing": {"kind": "shell", "argv": ["false"]},
    }
    for name, task in tasks.items():
        await client.create_job({"name": name, "task": task, "retries": {"max": 0}})
    for _ in range(SINGLE):
        await client.trigger("noop")
    shell = await client.trigger("shell")
    function = await client.trigger("function", wire.RunNow(params={"n": 21}))
    failing = await client.trigger("failing")

    async def ended() -> bool:
        listed = await client.executions(limit=100)
        return len(listed.items) == SINGLE + 3 and all(e.finished_at is not None for e in listed.items)

    await until_async("all executions ended", ended, within_s=60)
    assert (await client.execution(failing.execution_id)).state == "failed"
    assert (await client.execution(function.execution_id)).result == 42
    assert [chunk.text for chunk in (await client.logs(shell.execution_id)).chunks] == ["printed\n"]


@pytest.fixture
def modules(tmp_path: Path) -> str:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return str(tmp_path / "functions.py")


async def test_a_worker_of_an_earlier_version(postgres: EmbeddedServer, earlier: Path, modules: str) -> None:
    async with started(await clone(postgres)) as cluster, cluster.client() as client:
        address = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.worker_token}
        async with program(earlier, "worker", "--name", "earlier", "-m", modules, **address):
            await use(client)


async def test_a_server_of_an_earlier_version(postgres: EmbeddedServer, earlier: Path, modules: str) -> None:
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute("CREATE DATABASE earlier OWNER mainspring")
    await connection.close()
    database, port = postgres.dsn_for("earlier"), free_port()
    token, worker_token = await asyncio.to_thread(issue_tokens, earlier, database)
    url = f"http://127.0.0.1:{port}"
    async with (
        program(earlier, "serve", "--port", str(port), MAINSPRING_DATABASE_URL=database),
        AsyncClient(url, token) as client,
    ):
        await until_async("the server answers", lambda: answers(client), within_s=60)
        async with program(
            None, "worker", "--name", "new", "-m", modules, MAINSPRING_URL=url, MAINSPRING_TOKEN=worker_token
        ):
            await use(client)


def issue_tokens(earlier: Path, database: str) -> list[str]:
    """Migrate the database to the schema of the earlier version; return a token for users and one for workers."""
    found = subprocess.run(
        [sys.executable, "-c", TOKENS, database],
        env={**os.environ, "PYTHONPATH": str(earlier)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return found.stdout.split()


async def answers(client: AsyncClient) -> bool:
    try:
        await client.jobs(limit=1)
    except (OSError, MainspringError):
        return False
    return True
