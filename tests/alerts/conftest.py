"""What every test of telling begins with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.store.db import Database
from tests.support.alerts import Telling


@pytest.fixture
async def telling(fresh: Database) -> AsyncIterator[Telling]:
    telling = Telling(fresh)
    yield telling
    await telling.sender.close()
