"""The system page: shards and owners, processes, database size, and the doctor."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import __version__
from mainspring.store import doctor
from mainspring.store import system as facts_store
from mainspring.store.migrate import schema_version
from mainspring.views.overview import shards_now
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import fragment, now, page
from mainspring.zones import rules_version

TABLES_SHOWN = 8


async def system(request: PageRequest) -> Response:
    """GET /system; with `doctor=1`, check every invariant too."""
    async with request.context.database.root.connection() as connection:
        facts = await facts_store.system_facts(connection)
        seen = now()
        sizes = await facts_store.table_sizes(connection, limit=TABLES_SHOWN)
        processes = await facts_store.process_figures(connection) if request.caller.is_cluster_admin else []
        engines = await facts_store.engines(connection) if request.caller.is_cluster_admin else []
        schema = await schema_version(connection)
        tenant = request.caller.visible_tenant
        diagnosis = await doctor.examine(connection, tenant=tenant) if request.query("doctor") else None
    return page(
        "system.html",
        request.caller,
        known=await shards_now(request.context.database.root, named=request.caller.is_cluster_admin),
        facts=facts,
        sizes=sizes,
        processes=processes,
        engines=engines,
        schema=schema,
        diagnosis=diagnosis,
        version=__version__,
        zones=rules_version(),
        skew_s=(seen - facts.now).total_seconds(),
    )


async def shard_tables(request: PageRequest) -> str:
    """Render the shards again, for the live stream."""
    request.caller.demand("admin")
    known = await shards_now(request.context.database.root, named=request.caller.is_cluster_admin)
    return fragment("shard_parts.html", "shard_tables", request.caller, known=known)
