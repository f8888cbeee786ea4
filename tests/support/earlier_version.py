"""Programs of an earlier version, from the project's own history, on a database that they have migrated."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.embedded.server import EmbeddedServer
from tools.tree import ROOT

TOKENS = """
import asyncio, sys
from mainspring.api.auth import issue_token
from mainspring.store.db import Database
from mainspring.store.migrate import migrate

try:
    from mainspring.domain.grants import EVERYTHING
    granted = {"grants": EVERYTHING}
except ImportError:
    granted = {}  # before there were grants

async def main(url):
    await migrate(url)
    async with Database(url, size=1) as database, database.connection() as connection:
        for scope in ("admin", "worker"):
            print(await issue_token(connection, tenant=1, name=f"test {scope}", scopes=(scope,),
                                    **(granted if scope == "worker" else {})))

asyncio.run(main(sys.argv[1]))
"""


def source_of(commit: str, folder: Path) -> Path:
    """The source folder of an earlier version."""
    archive = subprocess.run(
        ["git", "archive", commit, "src", "pyproject.toml"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this checkout does not have the commit {commit}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    _write_metadata(folder / "src", tomllib.loads((folder / "pyproject.toml").read_text())["project"])
    return folder / "src"


def _write_metadata(source: Path, project: dict[str, Any]) -> None:
    """What an installation has beside the code. Its entry points hide those of the version that is installed here."""
    folder = source / f"{project['name']}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{n} = {to}" for n, to in points.items()))]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


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


async def empty_database(postgres: EmbeddedServer, name: str) -> str:
    connection = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    await connection.execute(f"CREATE DATABASE {name} OWNER mainspring")
    await connection.close()
    return postgres.dsn_for(name)


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
