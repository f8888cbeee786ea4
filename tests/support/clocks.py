"""Clocks that stand still until a test moves them: of the database, and of a process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mainspring.store.db import Database

START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


class VirtualClock:
    """Replaces db_now(), so that every check in SQL follows it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.now = START

    async def install(self) -> None:
        async with self._database.transaction() as connection:
            await connection.execute("CREATE TABLE virtual_clock (at timestamptz NOT NULL)")
            await connection.execute("INSERT INTO virtual_clock VALUES ($1)", self.now)
            await connection.execute(
                "CREATE OR REPLACE FUNCTION db_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                " AS 'SELECT at FROM mainspring.virtual_clock'"
            )
            await connection.execute("UPDATE shards SET watermark = $1", self.now)
            # The schema has those of the days since the tests began, which may be later.
            await connection.execute("SELECT make_partitions(2)")

    async def set(self, at: datetime) -> None:
        self.now = at
        async with self._database.connection() as connection:
            await connection.execute("UPDATE virtual_clock SET at = $1", at)

    async def advance(self, **by: float) -> None:
        await self.set(self.now + timedelta(**by))


class ManualClock:
    """A process clock that the test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now_ms(self) -> float:
        return self.at * 1000

    def monotonic(self) -> float:
        return self.at
