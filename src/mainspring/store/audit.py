"""The audit log: actor, action and subject of every change, appended in its transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from mainspring import ports, wire
from mainspring.domain.audit import ACTIONS
from mainspring.domain.principal import Principal
from mainspring.store.db import Connection, json_array
from mainspring.store.hints import hint
from mainspring.store.queries import q

BEFORE_ALL = 2**63 - 1


class Origin:
    """The request that causes an entry: its id and the network address that it came from.

    A request without an id of its own gets one when an entry needs it.
    """

    __slots__ = ("_id", "source")

    def __init__(self, source: str, request_id: str | None = None) -> None:
        self.source = source
        self._id = request_id

    @property
    def request_id(self) -> str:
        if self._id is None:
            self._id = uuid4().hex
        return self._id

    @property
    def known_id(self) -> str | None:
        """Its id, if it has one or an entry needed one."""
        return self._id


ORIGIN: ContextVar[Origin | None] = ContextVar("ORIGIN", default=None)
"""The request that is being served; None: a duty of the system."""


@dataclass(frozen=True, slots=True)
class AuditSubject:
    """A subject of an audit entry: its id, its display name, and details."""

    subject: str
    name: str | None = None
    details: Any = None


async def record(
    connection: Connection,
    action: str,
    subject: UUID | str,
    *,
    tenant: int,
    by: str,
    name: str | None = None,
    reason: str | None = None,
    **details: Any,
) -> None:
    """Append one entry, in the transaction of the change. The tenant 0 is the cluster."""
    entry = AuditSubject(str(subject), name, details or None)
    await record_all(connection, action, [entry], tenant=tenant, by=by, reason=reason)


async def record_all(
    connection: Connection,
    action: str,
    entries: Iterable[AuditSubject],
    *,
    tenant: int,
    by: str,
    reason: str | None = None,
) -> None:
    """Append one entry per subject for one action."""
    assert action in ACTIONS, action
    found = list(entries)
    if found:
        await insert_audit(connection, tenant=tenant, by=by, action=action, reason=reason, entries=found)


async def insert_audit(
    connection: Connection,
    *,
    tenant: int,
    by: str,
    action: str,
    reason: str | None,
    entries: Sequence[AuditSubject],
) -> None:
    origin = ORIGIN.get()
    await connection.execute(
        q("insert_audit"),
        tenant,
        by.name if isinstance(by, Principal) else by,
        action,
        reason or None,
        [e.subject for e in entries],
        [e.name for e in entries],
        json_array(_details(e, by) for e in entries),
        by.token_id if isinstance(by, Principal) else None,
        by.principal_id if isinstance(by, Principal) else None,
        None if origin is None else origin.request_id,
        None if origin is None else origin.source,
    )
    hint(connection, ports.AUDIT)


def _details(entry: AuditSubject, by: str) -> Any:
    """The details of an entry, with who issued the token of the actor, and so may have acted with it."""
    if not isinstance(by, Principal) or by.issued_by is None or not isinstance(entry.details, dict | None):
        return entry.details
    return {**(entry.details or {}), "issued_by": by.issued_by}


async def latest_submission(connection: Connection, *, tenant: int, by: str) -> tuple[datetime, UUID] | None:
    """Return when a token last requested an execution in an audited way, and the execution."""
    if not isinstance(by, Principal):
        return None
    row = await connection.fetchrow(q("latest_submission"), tenant, by.token_id)
    return None if row is None or row["execution_id"] is None else (row["at"], UUID(row["execution_id"]))


async def list_audit(
    connection: Connection,
    *,
    tenant: int,
    before: int,
    limit: int,
    subjects: Sequence[str] | None = None,
    actor: str | None = None,
    actor_id: UUID | None = None,
    actions: Sequence[str] | None = None,
) -> list[wire.AuditEntry]:
    rows = await connection.fetch(q("list_audit"), tenant, before, limit, subjects, actor, actions, actor_id)
    return [
        wire.AuditEntry(
            audit_id=r["audit_id"],
            at=r["at"],
            actor=r["actor"],
            actor_id=r["actor_id"],
            action=r["action"],
            subject=r["subject"],
            name=r["name"],
            reason=r["reason"],
            details=r["details"],
            principal_id=r["principal_id"],
            request_id=r["request_id"],
            source=r["source"],
            seq=r["seq"],
            hash=None if r["hash"] is None else r["hash"].hex(),
        )
        for r in rows
    ]
