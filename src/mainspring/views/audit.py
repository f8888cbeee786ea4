"""The audit log: which user changed what, when and why."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.domain.audit import ACTIONS, KINDS
from mainspring.domain.audit_chain import CLUSTER
from mainspring.domain.errors import NotFound, invalid
from mainspring.store import audit
from mainspring.store.db import Connection, Database
from mainspring.views.refs import check_limit, is_id, known_jobs, number_cursor


async def list_entries(
    database: Database,
    *,
    tenant: int,
    cursor: str | None = None,
    limit: int = 50,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
) -> wire.Page[wire.AuditEntry]:
    """Entries of a tenant, or of the cluster (0), newest first.

    `actor` is the id or the name of a token, `action` an action, or a kind of subject for all actions on it.
    """
    check_limit(limit)
    if action is not None and action not in ACTIONS and action not in KINDS:
        raise invalid("/action", f"unknown action {action!r}", hint=f"one of {', '.join([*KINDS, *ACTIONS])}")
    before = number_cursor(cursor, digits=18) or audit.BEFORE_ALL
    actions = None if action is None else [a for a in ACTIONS if a == action or a.startswith(f"{action}.")]
    by_id = actor is not None and is_id(actor)
    async with database.connection() as connection:
        subjects = None if subject is None else await _subjects(connection, subject, tenant=tenant)
        rows = await audit.list_audit(
            connection,
            tenant=tenant,
            before=before,
            limit=limit + 1,
            subjects=subjects,
            actor=None if by_id else actor,
            actor_id=UUID(actor) if by_id else None,
            actions=actions,
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].audit_id) if len(rows) > limit else None)


async def _subjects(connection: Connection, subject: str, *, tenant: int) -> list[str]:
    """A subject as it is recorded: jobs by id, also deleted ones; others, such as queues, by name."""
    if is_id(subject) or tenant == CLUSTER:
        return [subject]
    try:
        return [subject, *map(str, await known_jobs(connection, subject, tenant=tenant))]
    except NotFound:
        return [subject]
