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
    principal_id: UUID | None = None
    """The user of the token."""
    request_id: str | None = None
    source: str | None = None
    """The network address of the request."""
    seq: int | None = None
    """Its number in the hash chain; null: it is not chained yet."""
    hash: str | None = None


class AuditProblem(Response):
    """The first entry of a chain that is not as it was written. `seq` is 0 for an entry that is in no chain."""

    kind: Literal[
        "changed", "removed", "inserted", "reordered", "truncated", "rewritten", "wrong_tenant", "forged_head"
    ]
    seq: int
    what: str
    audit_id: int | None = None


class AuditVerification(Response):
    """The result of verifying a part of a hash chain. All of it is intact if no part has a problem."""

    intact: bool
    verified: int
    """Entries that this request verified."""
    entries: int
    """Entries in the chain."""
    hash: str
    """The hash of its last entry."""
    unchained: int
    """Entries that were written in the last moments and are not chained yet."""
    signed_entries: int
    """Entries up to the newest signed head."""
    signed_at: datetime | None = None
    problem: AuditProblem | None = None
    notes: list[str] = []
    next_cursor: str | None = None
    """Where the next request continues; null: nothing is left to verify."""


class Usage(Response):
    """What the executions of a job, a queue or a tenant used. Durations are those of last attempts.

    `cost` is by the prices of the server and the resources that the current version of each job requests; null without
    prices. `resource_hours`: hours of cores (`cpu`), GiB (`memory`, `disk`) and other resources that they held.
    Percentiles, of the durations of successes, are known for queues only.
    """

    name: str
    executions: int
    failed: int
    skipped: int
    run_hours: float
    mean_ms: float | None
    mean_wait_ms: float | None
    cost: float | None
    job_id: UUID | None = None
    queue: str | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    resource_hours: dict[str, float] = {}


class Costs(Response):
    """Executions, hours and costs since `since_at` by tenant, queue and job; the most expensive jobs only."""

    since_at: datetime
    until: datetime
    currency: str
    cost: float | None
    tenants: list[Usage]
    queues: list[Usage]
    jobs: list[Usage]
