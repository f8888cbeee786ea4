"""Databases for tests: one PostgreSQL server for a test process, and a copy of a migrated template for each cluster."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from mainspring.embedded.server import EmbeddedServer
from mainspring.store.migrate import migrate
from mainspring.store.virtual_time import create_database, drop_database

SETTINGS = {"fsync": "off", "shared_buffers": "128MB", "max_wal_size": "1GB"}
"""Nothing here outlives the tests, so durability would only cost time."""
URL_VARIABLE = "MAINSPRING_TEST_DATABASE_URL"
"""Tests use this server instead of their own; its role must be able to create databases."""
_numbers = itertools.count()


class TestDatabases:
    """Creates databases with the current schema, and drops them again."""

    __test__ = False  # pytest collects classes by their names

    def __init__(self, folder: Path | None = None, *, url: str | None = None) -> None:
        self._url = url or os.environ.get(URL_VARIABLE)
        self._own = Path(tempfile.mkdtemp(prefix="mainspring-test-")) if folder is None and not self._url else None
        folder = folder or self._own
        self.server = None if self._url or folder is None else EmbeddedServer(folder, settings=SETTINGS)
        self._prefix = f"mainspring_test_{os.getpid()}"
        self._template = f"{self._prefix}_template"

    async def start(self) -> None:
        if self.server is not None:
            await self.server.start()
        await create_database(self._address, self._template)
        await migrate(self.dsn(self._template))

    async def create(self) -> str:
        """Return the address of a new database."""
        name = f"{self._prefix}_{next(_numbers)}"
        await create_database(self._address, name, template=self._template)
        return self.dsn(name)

    async def drop(self, dsn: str) -> None:
        await drop_database(self._address, urlsplit(dsn).path[1:])

    async def stop(self) -> None:
        if self.server is None:
            await self.drop(self.dsn(self._template))
            return
        await self.server.stop()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def dsn(self, database: str) -> str:
        if self.server is not None:
            return self.server.dsn_for(database)
        assert self._url is not None
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{database}"))

    @property
    def _address(self) -> str:
        return self._url or self.dsn("postgres")
