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
    """One offender against one promise, found by the doctor."""

    check: str
    offender: str
    what: str


class Diagnosis(Response):
    healthy: bool
    checks: dict[str, str]
    findings: list[Finding]
    tzdata: str = ""
    """The time zone rules this server computes by."""
    notes: list[str] = []


class LoginLink(Response):
    path: str
    expires_at: datetime


class AuditEntry(Response):
    """What somebody did: `action` to the `subject`, which is an id, of a step its run's, or the name of a queue."""

    audit_id: int
    at: datetime
    actor: str
    action: str
    subject: str
    name: str | None = None
    reason: str | None = None
    details: Any = None
