"""Sessions that poll this process, cached with their worker profiles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

from mainspring.dispatch.lines import Line, WorkerProfile, profile_of
from mainspring.domain.errors import Conflict, Forbidden
from mainspring.store import sessions
from mainspring.store.db import Database
from mainspring.store.sessions import NO_PROOF, Session, SessionProof

MAX_LOOKUPS = 3
"""Concurrent session look-ups: after a restart a whole fleet polls at once, and heartbeats need connections too."""


class SessionCache:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._sessions: dict[UUID, tuple[Session, WorkerProfile]] = {}
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self._changes = 0  # statements of functions; a session read before one is read again

    def __contains__(self, session_id: UUID) -> bool:
        return session_id in self._sessions

    async def get(
        self, session_id: UUID, *, tenant: int, proof: SessionProof = NO_PROOF
    ) -> tuple[Session, WorkerProfile]:
        """Return a live session of this tenant. Raises Conflict if it has ended, Forbidden if the proof is not its."""
        found = self._sessions.get(session_id)
        while found is None:
            changes = self._changes
            async with self._lookups, self._database.connection() as connection:
                session = await sessions.session_by_id(connection, tenant=tenant, session_id=session_id)
            if session is None:
                break
            if changes == self._changes:
                found = self._sessions[session_id] = (session, profile_of(session))
        if found is None or found[0].tenant != tenant:
            raise _unknown()
        _check(found[0].proof, proof)
        return found

    async def require(self, session_id: UUID, *, tenant: int, proof: SessionProof) -> SessionProof:
        """Refuse a message that may not act for the session, ended or not; return what the session demands."""
        if (found := self._sessions.get(session_id)) is not None:
            demanded = found[0].proof if found[0].tenant == tenant else None
        else:
            async with self._database.connection() as connection:
                demanded = await sessions.session_proof(connection, tenant=tenant, session_id=session_id)
        if demanded is None:
            raise _unknown()
        _check(demanded, proof)
        return demanded

    def check_cached(self, session_id: UUID, *, tenant: int, proof: SessionProof) -> None:
        """Refuse a message that may not act for a cached session; of any other, a statement has to check it."""
        if (found := self._sessions.get(session_id)) is not None and found[0].tenant == tenant:
            _check(found[0].proof, proof)

    @property
    def stating(self) -> list[UUID]:
        """The cached sessions that state their functions."""
        return [session_id for session_id, (session, _) in self._sessions.items() if session.functions is not None]

    def latest(self, session_id: UUID) -> tuple[Session, WorkerProfile] | None:
        return self._sessions.get(session_id)

    def functions_changed(self) -> None:
        """Note that a session, cached or being read, has stated other functions."""
        self._changes += 1

    async def read_again(self, session_id: UUID) -> tuple[Session, WorkerProfile] | None:
        """Read what a cached session states now; None if it is not cached, or has ended."""
        if (found := self._sessions.get(session_id)) is None:
            return None
        async with self._lookups, self._database.connection() as connection:
            session = await sessions.session_by_id(connection, tenant=found[0].tenant, session_id=session_id)
        if session is None or (found := self._sessions.get(session_id)) is None:
            return None
        profile = replace(profile_of(session), reserved_line=found[1].reserved_line)
        self._sessions[session_id] = (session, profile)
        return session, profile

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


def _unknown() -> Conflict:
    return Conflict("unknown or ended session; register again", code="session_ended")


def _check(demanded: SessionProof, given: SessionProof) -> None:
    if not demanded.accepts(given):
        raise Forbidden(
            "this session belongs to another worker: send the token that registered it, and the session's key in the"
            " header Mainspring-Session-Key",
            code="not_session_owner",
        )
