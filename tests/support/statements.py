"""What is asked of a database while a test runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from mainspring.store.db import Connection, Database
from mainspring.store.queries import q


def listen(
    database: Database,
    lent: Literal["connection", "hot", "reading"],
    note: Callable[[Any], None],
    patch: pytest.MonkeyPatch,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """From now on `note` gets each statement on connections lent this way, also on those for one tenant, to tasks that
    are `wanted`."""
    for pools in filter(None, (database, database._tenants)):
        _listen(pools, lent, note, patch, wanted)


def _listen(
    database: Database,
    lent: Literal["connection", "hot", "reading"],
    note: Callable[[Any], None],
    patch: pytest.MonkeyPatch,
    wanted: Callable[[], bool],
) -> None:
    lend = getattr(database, lent)

    def heard(record: Any) -> None:
        if record.query != q("set_tenant"):
            note(record)

    @asynccontextmanager
    async def listening() -> AsyncIterator[Connection]:
        async with lend() as connection:
            if not wanted():
                yield connection
                return
            connection.add_query_logger(heard)
            try:
                yield connection
            finally:
                connection.remove_query_logger(heard)

    patch.setattr(database, lent, listening)
