from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mainspring.cli.main import main
from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.invoke import Invoke
from tests.support.scripted_server import Scripted, serving


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving() as script:
        yield script


@pytest.fixture
def invoke(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Invokes `mainspring` with arguments against `server`, without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MAINSPRING_URL", server.url)
    monkeypatch.setenv("MAINSPRING_TOKEN", "secret")

    def invoke(*words: str, input: str | None = None) -> Result:
        result = CliRunner().invoke(main, words, input=input, prog_name="mainspring")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sets the local time zone to Asia/Tokyo."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield "JST"
    time.tzset()
