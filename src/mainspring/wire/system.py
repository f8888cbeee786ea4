"""Health, diagnosis, login links and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from mainspring.wire.message import Response


class Health(Response):
    status: Literal["ok", "unavailable"]
    version: str
    schema_version: int
    checks: dict[str, str] = {}
    """Each check with "ok", or the reason why the process is not ready."""
    notes: list[str] = []
    """What an operator should know, although the process is ready."""


class Finding(Response):
    """A violation of an invariant, found by the doctor."""

    check: str
    offender: str
    what: str


class Diagnosis(Response):
    healthy: bool
    checks: dict[str, str]
    findings: list[Finding]
    tzdata: str = ""
    """The time zone database version of this server."""
    notes: list[str] = []


class LoginLink(Response):
    path: str
    expires_at: datetime


class BrowserSession(Response):
    """A browser that is signed in. `current`: the request came from it."""

    session_id: UUID
    token_id: UUID
    token: str
    created_at: datetime
    seen_at: datetime
    """When it was last used, to the minute."""
    expires_at: datetime
    address: str
    """The address from which it signed in."""
    user_agent: str
    current: bool = False


class EndedSessions(Response):
    ended: int


class AuditEntry(Response):
    """A change made by a user. `subject` is an id (for a step, that of its run) or the name of a queue.

    `actor_id` is the id of the token, and `actor` the name that it had; null: the system, or an entry from before ids
    were recorded. Only the id identifies a token: names are chosen.
    """

    audit_id: int
    at: datetime
    actor: str
    action: str
    subject: str
    name: str | None = None
    reason: str | None = None
    details: Any = None
    actor_id: UUID | None = None
