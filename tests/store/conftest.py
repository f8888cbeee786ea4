"""Fixtures of the store tests: a database whose clock the test moves, and executions driven step by step."""

from __future__ import annotations

import pytest

from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.settling import SettlingBench


@pytest.fixture
async def bench(fresh: Database, virtual: VirtualClock) -> SettlingBench:
    return SettlingBench(fresh)
