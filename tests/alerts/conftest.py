"""Fixtures for tests of alerts and notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.store.db import Database
from tests.support.alerts import AlertBench


@pytest.fixture
async def bench(fresh: Database) -> AsyncIterator[AlertBench]:
    bench = AlertBench(fresh)
    yield bench
    await bench.sender.close()
