"""Drain workers, and let them claim again."""

from __future__ import annotations

from mainspring import wire
from mainspring.domain.errors import Conflict, NotFound
from mainspring.store import audit, sessions
from mainspring.store.db import Database
from mainspring.views import workers as worker_views


async def set_draining(
    database: Database, name: str, *, draining: bool, reason: str, tenant: int, by: str
) -> wire.Worker:
    """Let a worker finish what it runs and claim nothing more, or let it claim again. Idempotent."""
    async with database.transaction() as connection:
        if await sessions.set_draining(connection, tenant=tenant, name=name, draining=draining):
            action = "worker.drain" if draining else "worker.resume"
            await audit.record(connection, action, name, tenant=tenant, by=by, name=name, reason=reason)
    found = next((w for w in await worker_views.list_workers(database, tenant=tenant) if w.name == name), None)
    if found is None:
        raise NotFound(f"no worker {name!r} in the last day; list workers with: mainspring workers list")
    if found.state in ("lost", "offline"):
        raise Conflict(f"the worker {name!r} is {found.state}", code="worker_gone")
    return found
