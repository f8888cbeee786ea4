"""Sessions that poll this process, cached with their worker profiles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

from mainspring.dispatch.lines import Line, WorkerProfile, profile_of
from mainspring.domain.errors import Conflict
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.sessions import Session

MAX_LOOKUPS = 3
"""Concurrent session look-ups: after a restart a whole fleet polls at once, and heartbeats need connections too."""


class SessionCache:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sessions: dict[UUID, tuple[Session, WorkerProfile]] = {}
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)

    def __contains__(self, session_id: UUID) -> bool:
        return session_id in self._sessions

    async def get(self, session_id: UUID, *, tenant: int) -> tuple[Session, WorkerProfile]:
        """Return a live session of this tenant. Raises Conflict if it has ended."""
        found = self._sessions.get(session_id)
        if found is None:
            async with self._lookups, self._database.connection() as connection:
                session = await sessions.session_by_id(connection, tenant=tenant, session_id=session_id)
            if session is not None:
                found = self._sessions[session_id] = (session, profile_of(session))
        if found is None or found[0].tenant != tenant:
            raise Conflict("this session has ended; register again", code="session_ended")
        return found

    async def belongs_to(self, session_id: UUID, *, tenant: int) -> bool:
        """Whether the session, ended or not, belongs to this tenant."""
        if (found := self._sessions.get(session_id)) is not None:
            return found[0].tenant == tenant
        async with self._database.connection() as connection:
            return await sessions.is_session_of(connection, tenant=tenant, session_id=session_id)

    def forget(self, session_id: UUID) -> None:
        self._sessions.pop(session_id, None)

    def reserved_line(self, session_id: UUID) -> int | None:
        """Return the line that the session's worker is reserved for, if any."""
        found = self._sessions.get(session_id)
        return None if found is None else found[1].reserved_line

    def reserve(self, session_id: UUID, line: Line | None) -> WorkerProfile | None:
        """Reserve the worker for one line, or for none; return its new profile, or None if the session is unknown."""
        if (found := self._sessions.get(session_id)) is None:
            return None
        profile = replace(found[1], reserved_line=None if line is None else line.line_id)
        self._sessions[session_id] = (found[0], profile)
        return profile
