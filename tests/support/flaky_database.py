"""A database whose connection can be lost at a chosen moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.store.db import Connection, Database


class Flaky(Database):
    """Loses connections on demand: before anything was asked, or after the commit, so that its answer is lost."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, size=4)
        self.trouble: list[str] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        fails = self.trouble.pop() if self.trouble else ""
        _lose(fails == "before")
        async with super().connection() as connection:
            yield connection
        _lose(fails == "after")

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        fails = self.trouble.pop() if self.trouble else ""
        _lose(fails == "before")
        async with super().hot() as connection:
            yield connection
        _lose(fails == "after")


def _lose(really: bool) -> None:
    if really:
        raise ConnectionResetError("lost on purpose")
