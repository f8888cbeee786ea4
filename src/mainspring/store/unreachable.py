"""Errors of PostgreSQL and of the way to it, as errors that say what to do. For commands that an operator runs."""

from __future__ import annotations

import asyncio
import errno

import asyncpg

from mainspring.domain.errors import Conflict, Forbidden, MainspringError, NotFound, Unavailable

CHECK_URL = "check --database-url or MAINSPRING_DATABASE_URL"
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def as_problem(error: BaseException) -> MainspringError | None:
    """Return what an operator needs to know of a database error; None for any other error."""
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return Forbidden(f"PostgreSQL refuses the role: {error}; {CHECK_URL}")
        case asyncpg.InvalidCatalogNameError():
            return NotFound(f"{error}: create it, or {CHECK_URL}")
        case asyncpg.InsufficientPrivilegeError():
            return Forbidden(f"{error}: use the URL of the role that owns the schema")
        case asyncpg.ReadOnlySQLTransactionError():
            return Conflict(
                "the server accepts no writes: it is a standby, still recovers, or is read-only; use the primary, or"
                " wait for the end of the recovery"
            )
        case asyncpg.DiskFullError():
            return Unavailable(f"the disk of the database is full: {error}")
        case asyncpg.TooManyConnectionsError() | asyncpg.CannotConnectNowError():
            return Unavailable(f"PostgreSQL accepts no connection now: {error}")
        case asyncpg.PostgresConnectionError() | asyncpg.AdminShutdownError() | asyncpg.CrashShutdownError():
            return Unavailable(f"the connection to the database was lost: {error}")
        case asyncpg.PostgresError():
            return Conflict(f"PostgreSQL: {error}")
        case asyncio.TimeoutError():
            return Unavailable(f"the database does not answer: {CHECK_URL}")
        case OSError() if error.errno not in _DISK and error.filename is None:
            return Unavailable(f"cannot connect to the database: {_reason(error)}; {CHECK_URL}")
        case asyncpg.InterfaceError() | asyncpg.InternalClientError():
            return Unavailable(f"cannot connect to the database: {error}; {CHECK_URL}")
    return None


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
