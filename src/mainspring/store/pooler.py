"""PgBouncer between a server and PostgreSQL: what its connections cannot have, and how that is noticed.

In transaction mode, each transaction of a connection may reach another session of PostgreSQL. So prepared statements,
session settings, LISTEN and session locks need a second URL that leads to PostgreSQL itself. Settings that every
session needs are stored as defaults of the role.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg

from mainspring.domain.errors import MainspringError
from mainspring.store.queries import q

TRACKED = ("timezone", "application_name")
"""Settings that PgBouncer restores for each client; it refuses others when a client connects."""
PROBE_S = 3.0
NEEDED = "needs a connection to PostgreSQL itself, or through a pooler in session mode"


class SessionNeeded(MainspringError):
    """A URL leads through a pooler in transaction mode, where one that keeps its session is needed."""

    code = "session_needed"


def is_refusal(error: BaseException) -> bool:
    """Whether PgBouncer refused the settings of a connection."""
    return isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error)


def refused(error: BaseException) -> SessionNeeded:
    return SessionNeeded(
        f"the database URL leads to PgBouncer ({error}), and this {NEEDED}: give servers the URL of PostgreSQL as"
        " --direct-database-url, and `mainspring db` that URL (docs/how-to/high-availability.md)"
    )


async def has_pooler(connection: asyncpg.Connection[Any]) -> bool:
    """Whether a pooler answers: it invents the process id that it announces when a client connects."""
    return int(await connection.fetchval(q("backend_pid"))) != connection.get_server_pid()


async def keeps_session(first: asyncpg.Connection[Any], second: asyncpg.Connection[Any]) -> bool:
    """Whether `first` reaches the same session of PostgreSQL in its next transaction.

    `second` begins a transaction in between; in transaction mode it gets the session that `first` has just used.
    """
    token = secrets.token_hex(8)
    try:
        async with asyncio.timeout(PROBE_S):
            await first.execute(q("mark_session"), token)
            async with second.transaction():
                await second.execute("SELECT")
                return bool(await first.fetchval(q("session_mark")) == token)
    except TimeoutError:
        return False  # the pool has one session, which `second` holds


async def store_settings(connection: asyncpg.Connection[Any], pooled_url: str, settings: Mapping[str, str]) -> None:
    """Make settings the defaults of the role of a URL in this database, where they are not.

    The caller has a lock: PostgreSQL refuses concurrent changes of the same role.
    """
    role = unquote(urlsplit(pooled_url).username or "") or str(await connection.fetchval("SELECT session_user"))
    stored = set(await connection.fetchval(q("role_settings"), role) or ())
    for name, value in settings.items():
        if f"{name}={value}" in stored:
            continue
        statement = await connection.fetchval(q("set_role_setting"), role, name, value)
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError as error:
            raise SessionNeeded(
                f"the role {role} needs {name} as a default, since PgBouncer does not pass it on ({error}): as an"
                f" administrator run `{statement}`"
            ) from None
