"""Objects as manifests, a page of one kind at a time."""

from __future__ import annotations

from mainspring import wire
from mainspring.apply.adapter import Live
from mainspring.apply.kinds import ADAPTERS
from mainspring.apply.settings import exported_target
from mainspring.domain.errors import invalid
from mainspring.domain.suggestion import closest
from mainspring.manifest import KINDS, shortened
from mainspring.store.db import Database
from mainspring.views import refs


async def export_page(
    database: Database, kind: str, *, tenant: int, name: str | None = None, cursor: str | None = None, limit: int = 500
) -> wire.Page[wire.ManifestDocument]:
    """Return the objects of a kind as manifests, by name; without secrets."""
    if kind not in KINDS:
        close = closest(kind, KINDS, cutoff=0.5)
        hint = f"did you mean {close}?" if close else f"one of {', '.join(KINDS)}"
        raise invalid("/kind", f"unknown kind {kind[:100]!r}", hint=hint)
    refs.check_limit(limit)
    adapter = ADAPTERS[kind]
    async with database.connection() as connection:
        if name is not None:
            found = list((await adapter.read(connection, {name: None}, tenant=tenant)).items())
            found = [(n, live) for n, live in found if ("steps" in live.values) == (kind == "Workflow")]
            return wire.Page(items=[_document(kind, n, live) for n, live in found])
        rows = await adapter.page(connection, tenant=tenant, after=cursor or "", limit=limit + 1)
    items = [_document(kind, name, live) for name, live in rows[:limit]]
    return wire.Page(items=items, next_cursor=rows[limit - 1][0] if len(rows) > limit else None)


def _document(kind: str, name: str, live: Live) -> wire.ManifestDocument:
    values = exported_target(live) if kind == "Channel" else dict(live.values)
    metadata = values.pop("metadata", {})
    spec = shortened(values) if kind in ("Job", "Workflow") else values
    return wire.ManifestDocument(kind=kind, metadata={"name": name, **metadata}, spec=spec)
