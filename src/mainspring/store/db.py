"""Connection pools to PostgreSQL, and the errors that mean it is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import structlog

from mainspring import ports
from mainspring.store.hints import HintingConnection, Hints, hints_of, text_of
from mainspring.store.pooler import TRACKED
from mainspring.store.primary import primary_of
from mainspring.store.queries import q
from mainspring.store.tenant_connection import TenantConnection, set_tenant

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]
    Pool = asyncpg.Pool[Any]
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool

log = structlog.get_logger()

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
"""Errors of a database that is unreachable, full or read-only: nothing was acknowledged, so retry."""

Taken = asyncpg.UniqueViolationError
"""A unique name or id is already in use."""


class Outdated(asyncpg.PostgresError):
    """A statement found one of its assumptions outdated and changed nothing (function raise_outdated)."""

    sqlstate = "MS001"


class IllegalTransition(asyncpg.PostgresError):
    """A statement would have changed an execution's state in a way that is not in the table of transitions."""

    sqlstate = "MS002"


CONFLICTS: tuple[type[BaseException], ...] = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


IDLE_TRANSACTION = "idle_in_transaction_session_timeout"
"""A client that hangs or is cut off inside a transaction keeps its row locks; the server ends it after this time."""

HOT = {
    IDLE_TRANSACTION: "5s",
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""Settings of connections that only run statements whose best plan is always the same, planned once: the hot path, and
reads of jobs and executions. The plans are nested loops over indexes. By default, PostgreSQL plans each batch again
(3 µs an execution) and, while the statistics of these fast-changing tables are stale, occasionally chooses a sequential
scan."""

READ_CONNECTIONS = 4
CONNECT_TIMEOUT_S = 10.0
"""Longest time to open a connection. `end_stalled` cannot end one that is still being opened, so a network that breaks
meanwhile would block its caller for the minute that asyncpg allows."""


NOTIFY_TIMEOUT_S = 5.0


class Database:
    """Connection pools with schema, types and time zone set: a general one, one for the hot path, one for reads.

    `tenant_dsn` is the URL of a role that sees only rows of the tenant that a connection has set, for `of`. With
    `direct_dsn`, `dsn` leads through PgBouncer in transaction mode: the pools use no prepared statement and no setting
    of a session, and what needs a session uses `direct_dsn`.
    """

    def __init__(
        self,
        dsn: str,
        *,
        size: int = 10,
        hot_size: int = 6,
        tenant_dsn: str | None = None,
        direct_dsn: str | None = None,
        connection_class: type[HintingConnection] = HintingConnection,
    ) -> None:
        self.dsn = dsn
        self.direct_dsn = direct_dsn
        self._connection_class = connection_class
        self._size = size
        self._hot_size = hot_size
        self._prepared = direct_dsn is None
        self._pool: Pool | None = None
        self._hot_pool: Pool | None = None
        self._read_pool: Pool | None = None
        self._in_use: dict[Connection, float] = {}
        self._bus: ports.Bus | None = None
        self._archive: ports.Archive | None = None
        self._tenants: Database | None = None
        if tenant_dsn is not None:
            self._tenants = Database(tenant_dsn, size=size, hot_size=2, connection_class=TenantConnection)

    @property
    def bus(self) -> ports.Bus | None:
        """Publishes hints; None: this database sends them itself."""
        return self._bus

    @bus.setter
    def bus(self, bus: ports.Bus | None) -> None:
        self._bus = bus
        if self._tenants is not None:
            self._tenants.bus = bus

    @property
    def archive(self) -> ports.Archive | None:
        """Reads the days that are only in the archive; None: no archive is configured."""
        return self._archive

    @archive.setter
    def archive(self, archive: ports.Archive | None) -> None:
        self._archive = archive

    def of(self, tenant: int) -> Database:
        """Return this database as one tenant sees it: rows of other tenants are neither read nor written.

        That is this database itself where no role for tenants is configured.
        """
        return self if self._tenants is None else TenantDatabase(self._tenants, tenant, self)

    def seen_by(self, tenant: int, *, root: Database) -> Database:
        """Return this database, whose role sees one tenant at a time, as that tenant sees it."""
        return TenantDatabase(self, tenant, root)

    @property
    def has_tenant_role(self) -> bool:
        """Whether `of` is backed by row-level security."""
        return self._tenants is not None

    @property
    def root(self) -> Database:
        """The database of the process, which works for all tenants; its caches belong to this one."""
        return self

    async def open(self) -> None:
        if self._tenants is not None:
            await self._tenants.open()
        self._pool = await self._make_pool(self._size, {})
        self._hot_pool = await self._make_pool(self._hot_size, HOT)
        self._read_pool = await self._make_pool(READ_CONNECTIONS, HOT)

    async def _make_pool(self, size: int, settings: dict[str, str]) -> Pool:
        return await asyncpg.create_pool(
            self.dsn,
            min_size=0,
            max_size=size,
            connect=primary_of(self.dsn).connect,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=60,
            connection_class=self._connection_class,
            init=prepare_connection,
            reset=_keep_settings,
            statement_cache_size=400 if self._prepared else 0,
            max_cached_statement_lifetime=0,
            max_inactive_connection_lifetime=600,
            server_settings=connection_settings() | settings if self.direct_dsn is None else pooled_settings(),
        )

    async def close(self) -> None:
        if self._tenants is not None:
            await self._tenants.close()
        pools = self._pools()
        self._pool = self._hot_pool = self._read_pool = None
        for pool in pools:
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
        """A connection for submitting, claiming, settling and firing only."""
        assert self._hot_pool is not None, "open the database first"
        async with self._lend(self._hot_pool) as connection:
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """A connection for reads of jobs and executions whose statements have one best plan.

        PostgreSQL would plan them again for each job, because it expects a gain: with 30 days of history, planning took
        2 to 5 ms, and reading 0.3.
        """
        assert self._read_pool is not None, "open the database first"
        async with self._lend(self._read_pool) as connection:
            yield connection

    def _pools(self) -> list[Pool]:
        return [pool for pool in (self._pool, self._hot_pool, self._read_pool) if pool is not None]

    @asynccontextmanager
    async def _lend(self, pool: Pool) -> AsyncIterator[Connection]:
        async with pool.acquire() as connection:
            self._in_use[connection] = asyncio.get_running_loop().time()
            hints = hints_of(connection)
            try:
                yield connection
            finally:
                del self._in_use[connection]
                if hints:  # committed, or rolled back: then they are only spurious wake-ups
                    await self._send_hints(connection, hints)

    async def _send_hints(self, connection: Connection, hints: Hints) -> None:
        sent = dict(hints)
        hints.clear()
        if self._bus is None:
            await send_hints(connection, sent)
            return
        for (channel, payload), lowest in sent.items():
            self._bus.publish(channel, payload, lowest=lowest)

    async def discard_idle(self) -> None:
        """Discard idle connections: after an outage they may be broken without an error."""
        for pool in self._pools():
            await pool.expire_connections()
        if self._tenants is not None:
            await self._tenants.discard_idle()

    def end_stalled(self, *, longer_than_s: float) -> None:
        """Terminate connections in use for longer than this: a broken network never answers them."""
        before = asyncio.get_running_loop().time() - longer_than_s
        for connection in [c for c, since in self._in_use.items() if since < before]:
            connection.terminate()
        if self._tenants is not None:
            self._tenants.end_stalled(longer_than_s=longer_than_s)

    async def dedicated(self, *, prepared: bool = False) -> asyncpg.Connection[Any]:
        """A connection outside the pools, for LISTEN and session locks."""
        connection: asyncpg.Connection[Any] = await primary_of(self.direct_dsn or self.dsn).connect(
            timeout=CONNECT_TIMEOUT_S,
            server_settings=connection_settings(),
            statement_cache_size=100 if prepared else 0,
            max_cached_statement_lifetime=0,
        )
        return connection


class TenantDatabase(Database):
    """The database as one tenant sees it: row-level security hides the rows of others from its role.

    A pooled connection keeps the tenant that it was set to, so that only a change of tenant takes a round trip.
    """

    def __init__(self, pools: Database, tenant: int, root: Database) -> None:
        super().__init__(pools.dsn)
        self._shared = pools
        self._root = root
        self._archive = root.archive
        self.tenant = tenant

    @property
    def root(self) -> Database:
        return self._root

    def of(self, tenant: int) -> Database:
        assert tenant == self.tenant, "a tenant's database shows no other tenant"
        return self

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._shared.connection() as connection:
            await set_tenant(connection, self.tenant)
            yield connection

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        async with self._shared.hot() as connection:
            await set_tenant(connection, self.tenant)
            yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        async with self._shared.reading() as connection:
            await set_tenant(connection, self.tenant)
            yield connection


class JoinedDatabase(Database):
    """The database as seen from inside a transaction: every connection is the one of that transaction.

    Functions that open a transaction of their own take part in it; theirs becomes a savepoint. So changes of several
    kinds are committed together or not at all. `origin` is the database that the connection belongs to.
    """

    def __init__(self, connection: Connection, origin: Database) -> None:
        super().__init__("")
        self._joined = connection
        self.origin = origin

    @property
    def root(self) -> Database:
        return self.origin.root

    def of(self, tenant: int) -> Database:
        return self

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        yield self._joined

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self._joined.transaction():
            yield self._joined

    @asynccontextmanager
    async def hot(self) -> AsyncIterator[Connection]:
        yield self._joined

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        yield self._joined


async def send_hints(connection: Connection, hints: Hints) -> None:
    """Send hints to all processes. Best effort: an error is logged, and the hints are lost."""
    try:
        await notify(connection, hints)
    except Exception as error:
        log.debug("hints.dropped", hints=len(hints), error=repr(error))


async def notify(connection: Connection, hints: Hints) -> None:
    payloads = [text_of(payload, lowest) for (_, payload), lowest in hints.items()]
    await connection.execute(q("notify"), [channel for channel, _ in hints], payloads, timeout=NOTIFY_TIMEOUT_S)


async def _keep_settings(_: Connection) -> None:
    """No statement changes session settings, so the round trip that resets them is saved."""


def connection_settings() -> dict[str, str]:
    return {"search_path": SCHEMA, "timezone": "UTC", "application_name": "mainspring", IDLE_TRANSACTION: "15s"}


def pooled_settings() -> dict[str, str]:
    """What a connection through PgBouncer can set; the others are defaults of its role."""
    return {name: value for name, value in connection_settings().items() if name in TRACKED}


def stored_settings() -> dict[str, str]:
    """The defaults that the role of connections through PgBouncer needs."""
    return {name: value for name, value in connection_settings().items() if name not in TRACKED} | {"jit": "off"}


class JsonList:
    """A JSON list inside an array of JSON values; the driver would read a bare list as another array dimension."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def json_array(values: Iterable[Any]) -> list[Any]:
    """JSON values, possibly lists, as one array parameter."""
    return [JsonList(value) if isinstance(value, list | tuple) else value for value in values]


async def prepare_connection(connection: Connection) -> None:
    """Encode and decode jsonb with msgspec; None stays NULL."""
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        await connection.set_type_codec(
            "jsonb",
            schema="pg_catalog",
            encoder=lambda value: b"\x01" + msgspec.json.encode(value.value if type(value) is JsonList else value),
            decoder=lambda data: msgspec.json.decode(data[1:]),
            format="binary",
        )


async def database_now_ms(connection: Connection) -> float:
    at = await connection.fetchval(q("database_now"))
    return float(at.timestamp() * 1000)
