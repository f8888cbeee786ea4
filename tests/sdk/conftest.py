"""The SDK as an application has it: the server is found by the environment."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.sdk.clients import close_clients
from tests.conftest import Cluster


@pytest.fixture
async def at_home(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setenv("MAINSPRING_URL", cluster.url)
    monkeypatch.setenv("MAINSPRING_TOKEN", cluster.token)
    close_clients()
    yield
    close_clients()
