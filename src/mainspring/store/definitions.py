"""Cache of job definitions: a version never changes, so a cached one stays valid."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from mainspring.domain.job import Definition
from mainspring.store import jobs
from mainspring.store.db import Connection, Database

Version = tuple[UUID, int]
MAX_CACHED = 20_000


class Definitions:
    """Definitions by (job, version)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[Version, Definition] = {}

    async def get(self, versions: Iterable[Version], connection: Connection | None = None) -> dict[Version, Definition]:
        wanted = set(versions)
        missing = [version for version in wanted if version not in self._known]
        if missing:
            await self._load(missing, connection)
        return {version: self._known[version] for version in wanted}

    async def _load(self, missing: list[Version], connection: Connection | None) -> None:
        if connection is None:
            async with self._database.connection() as own:
                found = await jobs.definitions(own, versions=missing)
        else:
            found = await jobs.definitions(connection, versions=missing)
        if len(self._known) + len(found) > MAX_CACHED:
            self._known.clear()
        self._known |= found
