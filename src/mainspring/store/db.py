"""Connections to PostgreSQL, and the errors that mean it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from mainspring.store.queries import q

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]
    Pool = asyncpg.Pool[Any]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool

SCHEMA = "mainspring"

AWAY: tuple[type[BaseException], ...] = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.InternalClientError,
)
"""What a caller sees when the database is away, full or read-only: nothing was acknowledged, try again."""

Taken = asyncpg.UniqueViolationError
"""Somebody else has this name, or this id."""


class Outdated(asyncpg.PostgresError):
    """A statement found one of its assumptions outdated and changed nothing (function raise_outdated)."""

    sqlstate = "MS001"


class IllegalTransition(asyncpg.PostgresError):
    """A statement would have changed an execution's state in a way that is not in the table of transitions."""

    sqlstate = "MS002"


CONFLICTS: tuple[type[BaseException], ...] = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


IDLE_TRANSACTION = "idle_in_transaction_session_timeout"
"""Whoever is stopped or cut off inside a transaction holds its row locks; after this time the server ends it."""

HOT = {
    IDLE_TRANSACTION: "5s",
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""For connections that only run the statements of the hot path, whose right plan is always the same: nested loops
over primary keys and the claim's index, planned once. Left alone, PostgreSQL plans each batch anew (3 µs an execution)
and, while the statistics of these fast-moving tables are old, now and then reads all of them."""


class Database:
    """Two pools of connections with our schema, types and time zone set: one for everything, one for the hot path."""

    def __init__(self, dsn: str, *, size: int = 10, hot_size: int = 4, prepared: bool = True) -> None:
        self.dsn = dsn
        self._size = size
        self._hot_size = hot_size
        self._prepared = prepared
        self._pool: Pool | None = None
        self._hot_pool: Pool | None = None
        self._lent: dict[Connection, float] = {}

    async def open(self) -> None:
        self._pool = await self._make_pool(self._size, {})
        self._hot_pool = await self._make_pool(self._hot_size, HOT)

    async def _make_pool(self, size: int, settings: dict[str, str]) -> Pool:
        return await asyncpg.create_pool(
            self.dsn,
            min_size=0,
            max_size=size,
            command_timeout=60,
            init=prepare_connection,
            reset=_leave_as_it_is,
            statement_cache_size=400 if self._prepared else 0,
            max_cached_statement_lifetime=0,
            max_inactive_connection_lifetime=600,
            server_settings=connection_settings() | settings,
        )

    async def close(self) -> None:
        pools, self._pool, self._hot_pool = [self._pool, self._hot_pool], None, None
        for pool in filter(None, pools):
            try:
                await asyncio.wait_for(pool.close(), 5)
            except TimeoutError:
                pool.terminate()

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        assert self._pool is not None, "open the database first"
        async with self._lend(self._pool) as connection:
            yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self.connection() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        """A connection for claiming, settling and firing, and for nothing else."""
        assert self._hot_pool is not None, "open the database first"
        async with self._lend(self._hot_pool) as connection:
            yield connection

    @asynccontextmanager
    async def _lend(self, pool: Pool) -> AsyncIterator[Connection]:
        async with pool.acquire() as connection:
            self._lent[connection] = asyncio.get_running_loop().time()
            try:
                yield connection
            finally:
                del self._lent[connection]

    async def distrust_idle(self) -> None:
        """Uses none of the idle connections again: after an outage they may lead nowhere, and not say so."""
        for pool in filter(None, (self._pool, self._hot_pool)):
            await pool.expire_connections()

    def end_stranded(self, *, longer_than_s: float) -> None:
        """Ends connections that have been in use for so long: what a broken network swallowed is never answered."""
        before = asyncio.get_running_loop().time() - longer_than_s
        for connection in [c for c, since in self._lent.items() if since < before]:
            connection.terminate()

    async def dedicated(self, *, prepared: bool = False) -> asyncpg.Connection[Any]:
        """A connection of its own, for LISTEN and for session locks."""
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            self.dsn,
            timeout=10,
            server_settings=connection_settings(),
            statement_cache_size=100 if prepared and self._prepared else 0,
            max_cached_statement_lifetime=0,
        )
        return connection


async def _leave_as_it_is(_: Connection) -> None:
    """Nothing here changes a session's settings, so the round trip that would set them back is saved."""


def connection_settings() -> dict[str, str]:
    return {"search_path": SCHEMA, "timezone": "UTC", "application_name": "mainspring", IDLE_TRANSACTION: "15s"}


class Whole:
    """A JSON list inside an array of JSON values, which the driver would take for another dimension of the array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def json_array(values: Iterable[Any]) -> list[Any]:
    """JSON values, lists among them, as one array."""
    return [Whole(value) if isinstance(value, list | tuple) else value for value in values]


async def prepare_connection(connection: Connection) -> None:
    """JSON travels as msgspec bytes; None stays NULL."""
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + msgspec.json.encode(value.value if type(value) is Whole else value),
        decoder=lambda data: msgspec.json.decode(data[1:]),
        format="binary",
    )


async def database_now_ms(connection: Connection) -> float:
    at = await connection.fetchval(q("database_now"))
    return float(at.timestamp() * 1000)
