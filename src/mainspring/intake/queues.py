"""Change queue settings."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring import wire
from mainspring.codec import problem_of
from mainspring.domain.audit import changes as differences
from mainspring.domain.errors import Invalid, invalid
from mainspring.domain.job import QUEUE
from mainspring.domain.placement.isolation import MinIsolation
from mainspring.domain.queue import QueueSettings
from mainspring.store import audit, queues
from mainspring.store.db import Database
from mainspring.views.queues import overview as queue_overview


async def set_min_isolation(database: Database, minimum: MinIsolation, *, tenant: int, by: str) -> wire.Queues:
    """Set the minimum isolation in all queues of a tenant. A queue can require more, not less."""
    async with database.transaction() as connection:
        before = await queues.set_tenant_isolation(connection, tenant=tenant, minimum=minimum)
        changes = differences({"min_isolation": before}, {"min_isolation": minimum})
        await audit.record(connection, "queue.change", "*", tenant=tenant, by=by, name="*", changes=changes)
    return await queue_overview(database, tenant=tenant)


async def change(
    database: Database, name: str, changes: dict[str, Any], *, tenant: int, by: str, reason: str | None = None
) -> wire.Queue:
    """Merge changes into a queue's settings; null resets a setting to its default."""
    if not QUEUE.match(name):
        raise invalid("/name", f"{name!r} is not a queue name", hint="lower case letters, digits, '_', '-'")
    async with database.transaction() as connection:
        old = await queues.lock_queue(connection, tenant=tenant, name=name)
        merged = {**msgspec.to_builtins(old), **changes}
        try:
            settings = msgspec.convert({k: v for k, v in merged.items() if v is not None}, QueueSettings)
        except msgspec.ValidationError as error:
            problem = problem_of(str(error), QueueSettings, merged)
            raise Invalid(f"the settings do not match the schema of a queue: {problem}", problems=(problem,)) from None
        for n, other in enumerate(settings.may_help):
            if not QUEUE.match(other) or other == name:
                raise invalid(f"/may_help/{n}", f"{other!r} is not the name of another queue", hint="name other queues")
        await queues.upsert_queue(connection, tenant=tenant, name=name, settings=settings, by=by)
        await audit.record(
            connection,
            "queue.change",
            name,
            tenant=tenant,
            by=by,
            name=name,
            reason=reason,
            changes=differences(msgspec.to_builtins(old), msgspec.to_builtins(settings)),
        )
    return next(queue for queue in (await queue_overview(database, tenant=tenant)).items if queue.name == name)
