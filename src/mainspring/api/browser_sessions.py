"""Routes of browser sessions: list and end them. A caller sees those of its token, an admin those of its tenant."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.api.auth import Caller
from mainspring.api.context import Context
from mainspring.api.route import Call, Table
from mainspring.domain.errors import NotFound
from mainspring.store import audit, browser_sessions
from mainspring.views import refs

table = Table()
SESSIONS = "/api/v1/browser-sessions"
MAX_LISTED = 500


@table.route("GET", SESSIONS, scope="read", response=wire.Page[wire.BrowserSession])
async def list_sessions(call: Call) -> wire.Page[wire.BrowserSession]:
    """List the browsers that are signed in with this token, or as an admin with any token of the tenant."""
    return wire.Page(items=await sessions_of(call.context, call.caller))


@table.route("DELETE", SESSIONS + "/{ref}", scope="read", status=204)
async def end_session(call: Call) -> None:
    """End a browser session; its cookie stops working at once."""
    await end_one(call.context, call.caller, call.path("ref"))


@table.route("DELETE", SESSIONS, scope="read", response=wire.EndedSessions)
async def end_sessions(call: Call) -> wire.EndedSessions:
    """End all browser sessions of this token."""
    return wire.EndedSessions(ended=await end_all(call.context, call.caller))


async def sessions_of(context: Context, caller: Caller) -> list[wire.BrowserSession]:
    async with context.database.connection() as connection:
        found = await browser_sessions.list_browser_sessions(
            connection, tenant=caller.tenant, token_id=_only_of(caller), limit=MAX_LISTED
        )
    return [
        wire.BrowserSession(
            session_id=line.session_id,
            token_id=line.token_id,
            token=line.token,
            created_at=line.created_at,
            seen_at=line.seen_at,
            expires_at=line.expires_at,
            address=line.address,
            user_agent=line.user_agent,
            current=line.session_id == caller.session_id,
        )
        for line in found
    ]


async def end_one(context: Context, caller: Caller, ref: str) -> None:
    unknown = NotFound(f"unknown browser session {ref!r}; it may have ended already")
    if not refs.is_id(ref):
        raise unknown
    session_id = UUID(ref)
    async with context.database.transaction() as connection:
        if not await browser_sessions.end_browser_session(
            connection, tenant=caller.tenant, session_id=session_id, token_id=_only_of(caller)
        ):
            raise unknown
        await audit.record(connection, "browser_session.end", session_id, tenant=caller.tenant, by=caller.name)
    context.streams.announce_end(session_id)


async def end_all(context: Context, caller: Caller) -> int:
    """End the sessions of the caller's token except its own; return how many there were."""
    async with context.database.transaction() as connection:
        ended = await browser_sessions.end_browser_sessions(
            connection, tenant=caller.tenant, token_id=caller.token_id, spare=caller.session_id
        )
        await audit.record(
            connection,
            "browser_session.end_all",
            caller.token_id,
            tenant=caller.tenant,
            by=caller.name,
            name=caller.name,
            ended=len(ended),
        )
    for session_id in ended:
        context.streams.announce_end(session_id)
    return len(ended)


def _only_of(caller: Caller) -> UUID | None:
    return None if caller.may("admin") else caller.token_id
