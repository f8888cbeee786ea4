"""The audit log: which user changed what, when and why."""

from __future__ import annotations

import contextlib

from mainspring import wire
from mainspring.domain.audit import ACTIONS, KINDS
from mainspring.domain.errors import NotFound, invalid
from mainspring.store import audit
from mainspring.store.db import Database
from mainspring.views.refs import bad_cursor, check_limit, is_id, job_row


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
    """Entries, newest first. `action` is an action, or a kind of subject for all actions on it."""
    check_limit(limit)
    if action is not None and action not in ACTIONS and action not in KINDS:
        raise invalid("/action", f"unknown action {action!r}", hint=f"one of {', '.join([*KINDS, *ACTIONS])}")
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise bad_cursor()
    before = int(cursor) if cursor else audit.BEFORE_ALL
    if subject is not None and not is_id(subject):
        with contextlib.suppress(NotFound):  # other subjects, such as queues, are recorded by name
            subject = str((await job_row(database, subject, tenant=tenant)).job_id)
    actions = None if action is None else [a for a in ACTIONS if a == action or a.startswith(f"{action}.")]
    async with database.connection() as connection:
        rows = await audit.list_audit(
            connection, tenant=tenant, before=before, limit=limit + 1, subject=subject, actor=actor, actions=actions
        )
    page = rows[:limit]
    return wire.Page(items=page, next_cursor=str(page[-1].audit_id) if len(rows) > limit else None)
