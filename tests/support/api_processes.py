"""Api processes around one database, without schedulers and workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from tests.support.processes import free_port, until_async


@asynccontextmanager
async def api_processes(folder: Path, database_url: str, number: int, **settings: str) -> AsyncIterator[list[str]]:
    """Start `number` api processes; yield their addresses when all respond. Settings are environment variables."""
    ports = [free_port() for _ in range(number)]
    processes = [_start(folder, database_url, port, settings) for port in ports]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as http:
            for url in urls:
                await until_async(f"{url} is ready", lambda url=url: _ready(http, url), within_s=60)  # type: ignore[misc]
        yield urls
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


async def _ready(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx2.HTTPError:
        return False


def _start(folder: Path, database_url: str, port: int, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
    env |= {"MAINSPRING_DATABASE_URL": database_url, "MAINSPRING_RATE_LIMIT": "0"} | settings
    options = ["--roles", "api", "--port", str(port), "--parent", str(os.getpid())]
    with (folder / f"api-{port}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "mainspring.cli.main", "serve", *options],
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
