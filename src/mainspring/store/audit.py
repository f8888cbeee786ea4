"""The audit log: actor, action and subject of every change, appended in its transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.domain.audit import ACTIONS
from mainspring.store.db import Connection, json_array
from mainspring.store.queries import q

BEFORE_ALL = 2**63 - 1


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
    """Append one entry, in the transaction of the change."""
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
    connection: Connection, *, tenant: int, by: str, action: str, reason: str | None, entries: Sequence[AuditSubject]
) -> None:
    await connection.execute(
        q("insert_audit"),
        tenant,
        by,
        action,
        reason or None,
        [e.subject for e in entries],
        [e.name for e in entries],
        json_array(e.details for e in entries),
    )


async def list_audit(
    connection: Connection,
    *,
    tenant: int,
    before: int,
    limit: int,
    subject: str | None = None,
    actor: str | None = None,
    actions: Sequence[str] | None = None,
) -> list[wire.AuditEntry]:
    rows = await connection.fetch(q("list_audit"), tenant, before, limit, subject, actor, actions)
    return [
        wire.AuditEntry(
            audit_id=r["audit_id"],
            at=r["at"],
            actor=r["actor"],
            action=r["action"],
            subject=r["subject"],
            name=r["name"],
            reason=r["reason"],
            details=r["details"],
        )
        for r in rows
    ]
