"""What is asked of a database while a test runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from mainspring.store.db import Connection, Database


def listen(
    database: Database,
    lent: Literal["connection", "hot", "reading"],
    note: Callable[[Any], None],
    patch: pytest.MonkeyPatch,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """From now on `note` gets each statement on connections lent this way to tasks that are `wanted`."""
    lend = getattr(database, lent)

    @asynccontextmanager
    async def listening() -> AsyncIterator[Connection]:
        async with lend() as connection:
            if not wanted():
                yield connection
                return
            connection.add_query_logger(note)
            try:
                yield connection
            finally:
                connection.remove_query_logger(note)

    patch.setattr(database, lent, listening)
