"""Triggers, without their secrets: the server generates the one of a new webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.apply.adapter import Adapter, Live, Writer, Written
from mainspring.intake.triggers import definitions
from mainspring.manifest import without_defaults
from mainspring.store import triggers
from mainspring.store.db import Connection
from mainspring.store.triggers import TriggerRow


class Triggers(Adapter):
    async def read(self, connection: Connection, wanted: Mapping[str, UUID | None], *, tenant: int) -> dict[str, Live]:
        rows = await triggers.triggers_named(connection, tenant=tenant, names=list(wanted))
        return {row.name: _live(row) for row in rows}

    async def page(self, connection: Connection, *, tenant: int, after: str, limit: int) -> list[tuple[str, Live]]:
        rows = await triggers.list_triggers(connection, tenant=tenant, after=after, limit=limit)
        return [(row.name, _live(row)) for row in rows]

    async def write(self, writer: Writer, name: str, definition: wire.NamedTrigger, live: Live | None) -> Written:
        spec = definition.spec
        if live is None:
            made = await definitions.create(
                writer.database, writer.vault, name, spec, tenant=writer.tenant, by=writer.by
            )
        else:
            made = await definitions.replace(writer.database, name, spec, tenant=writer.tenant, by=writer.by)
        return Written(object_id=made.trigger_id, version=made.version, secret=made.secret)

    async def delete(self, writer: Writer, name: str, live: Live, last: dict[str, Any]) -> None:
        await definitions.delete(writer.database, name, tenant=writer.tenant, by=writer.by)


def _live(row: TriggerRow) -> Live:
    return Live(without_defaults(row.spec), row.trigger_id, row.version, source=row)
