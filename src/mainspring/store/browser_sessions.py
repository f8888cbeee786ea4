"""Browsers that are signed in, and login links. Only digests of cookies and links are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mainspring.store.db import Connection
from mainspring.store.queries import q
from mainspring.store.tokens import Token, token_of

MAX_LINKS_PER_TOKEN = 20
MAX_SESSIONS_PER_TOKEN = 50
"""Beyond it, signing in ends the oldest session of the token."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """The session behind a cookie. `unseen`: its time of use is out of date."""

    session_id: UUID
    token: Token
    unseen: bool


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session as listed."""

    session_id: UUID
    token_id: UUID
    token: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    address: str
    user_agent: str


async def insert_login_link(
    connection: Connection, *, tenant: int, token_id: UUID, digest: bytes, seconds: float
) -> datetime:
    """Add a link; return when it expires."""
    expires_at = await connection.fetchval(
        q("insert_login_link"), digest, token_id, tenant, float(seconds), MAX_LINKS_PER_TOKEN - 1
    )
    assert isinstance(expires_at, datetime)
    return expires_at


async def login_link(connection: Connection, *, digest: bytes) -> Token | None:
    row = await connection.fetchrow(q("login_link"), digest)
    return None if row is None else token_of(row)


async def use_login_link(connection: Connection, *, digest: bytes) -> Token | None:
    """Return the token of a link once; None if the link is used, expired or unknown."""
    row = await connection.fetchrow(q("use_login_link"), digest)
    return None if row is None else token_of(row)


async def insert_browser_session(
    connection: Connection,
    *,
    tenant: int,
    token_id: UUID,
    session_id: UUID,
    digest: bytes,
    seconds: float,
    address: str,
    user_agent: str,
) -> bool:
    """Add a session; return whether its token is valid."""
    added = await connection.fetchval(
        q("insert_browser_session"),
        session_id,
        digest,
        token_id,
        tenant,
        float(seconds),
        address,
        user_agent,
        MAX_SESSIONS_PER_TOKEN - 1,
    )
    return added is not None


async def browser_session_by_digest(connection: Connection, *, digest: bytes) -> FoundSession | None:
    """The valid session with this digest; its token determines the tenant."""
    row = await connection.fetchrow(q("browser_session_by_digest"), digest)
    return None if row is None else FoundSession(row["session_id"], token_of(row), row["unseen"])


async def see_browser_session(connection: Connection, *, session_id: UUID) -> None:
    await connection.execute(q("see_browser_session"), session_id)


async def list_browser_sessions(
    connection: Connection, *, tenant: int, token_id: UUID | None, limit: int
) -> list[SessionLine]:
    """The sessions of a token, or with None of all tokens of the tenant."""
    rows = await connection.fetch(q("list_browser_sessions"), tenant, token_id, limit)
    return [SessionLine(*row.values()) for row in rows]


async def end_browser_session(
    connection: Connection, *, tenant: int, session_id: UUID, token_id: UUID | None = None
) -> bool:
    """End a session, with `token_id` only one of that token; return whether there was one."""
    return await connection.fetchval(q("end_browser_session"), session_id, tenant, token_id) is not None


async def end_browser_sessions(
    connection: Connection, *, tenant: int, token_id: UUID, spare: UUID | None
) -> list[UUID]:
    """End the sessions of a token, except `spare`; return their ids."""
    return [row["session_id"] for row in await connection.fetch(q("end_browser_sessions"), tenant, token_id, spare)]


async def ended_credentials(
    connection: Connection, *, token_ids: Iterable[UUID], session_ids: Iterable[UUID]
) -> list[UUID]:
    """Return those that are not valid any more."""
    rows = await connection.fetch(q("ended_credentials"), list(token_ids), list(session_ids))
    return [row["id"] for row in rows]
