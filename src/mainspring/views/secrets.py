"""Secrets without their values."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.store import secrets
from mainspring.store.db import Database
from mainspring.store.secrets import SecretRow
from mainspring.views.refs import check_limit


async def list_secrets(
    database: Database, *, tenant: int, limit: int = 100, cursor: str | None = None
) -> wire.Page[wire.Secret]:
    check_limit(limit)
    async with database.connection() as connection:
        rows = await secrets.list_secrets(connection, tenant=tenant, after=cursor or "", limit=limit + 1)
    page = rows[:limit]
    return wire.Page(items=[shown(row) for row in page], next_cursor=page[-1].name if len(rows) > limit else None)


async def get(database: Database, name: str, *, tenant: int) -> wire.Secret:
    async with database.connection() as connection:
        found = await secrets.list_secrets(connection, tenant=tenant, limit=1, name=name)
    if not found:
        raise unknown(name)
    return shown(found[0])


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no secret {name!r}")


def shown(row: SecretRow) -> wire.Secret:
    return wire.Secret(
        name=row.name,
        version=row.version,
        description=row.description,
        jobs=list(row.to.jobs),
        queues=list(row.to.queues),
        hosts=list(row.to.hosts),
        channels=list(row.to.channels),
        triggers=list(row.to.triggers),
        provider=row.provider,
        path=row.path,
        key_id=row.key_id,
        created_at=row.created_at,
        created_by=row.created_by,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        last_used_at=row.last_used_at,
    )
