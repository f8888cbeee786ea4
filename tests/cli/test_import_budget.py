"""How many modules commands import: most of the time of a short command is spent on imports."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from tests.conftest import Cluster
from tests.support.api_jobs import noop

pytestmark = pytest.mark.anyio

SCRIPT = """
import sys
import time
from mainspring.cli.main import main
try:
    main()
except SystemExit:
    pass
print(f"cpu {time.process_time():.3f}", file=sys.stderr)
print("modules", *sys.modules, file=sys.stderr)
"""


def run(*words: str, **more: str) -> tuple[str, set[str]]:
    """Run a command in a program of its own; return its output and the modules that it has loaded."""
    env = {**os.environ, **more}
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    *_, cpu, loaded = done.stderr.splitlines()
    names = set(loaded.split()[1:])
    print(f"{' '.join(words)}: {len(names)} modules, {cpu}")
    return done.stdout, names


def test_help_stays_small() -> None:
    _, loaded = run("--help")
    assert len(loaded) < 125, sorted(loaded)


@pytest.mark.parametrize("words", [("jobs", "list"), ("-o", "json", "jobs", "list"), ("executions", "list")])
async def test_a_command_that_lists_stays_small(cluster: Cluster, words: tuple[str, ...]) -> None:
    async with cluster.client() as client:
        job = await client.create_job(noop())
        await client.trigger(job.name)
    server = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.token}
    shown, loaded = await asyncio.to_thread(lambda: run(*words, **server))
    assert job.name in shown
    assert len(loaded) < 385, sorted(loaded)
    assert not loaded & {"asyncpg", "starlette", "uvicorn", "jinja2", "rich", "yaml", "structlog"}
