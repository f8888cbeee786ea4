"""Health, diagnosis, login links and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from mainspring.wire.message import Response


class Health(Response):
    status: Literal["ok", "unavailable"]
    version: str
    schema_version: int
    checks: dict[str, str] = {}


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


class AuditEntry(Response):
    """A change made by a user. `subject` is an id (for a step, that of its run) or the name of a queue."""

    audit_id: int
    at: datetime
    actor: str
    action: str
    subject: str
    name: str | None = None
    reason: str | None = None
    details: Any = None
