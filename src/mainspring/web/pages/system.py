"""Is the scheduler itself right: shards and their owners, processes, the database, and the doctor."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import __version__
from mainspring.store import doctor, system
from mainspring.store.migrate import schema_version
from mainspring.views.overview import shards_now
from mainspring.web.access import Visit
from mainspring.web.render import fragment, now, page
from mainspring.zones import rules_version

TABLES_SHOWN = 8


async def overview(visit: Visit) -> Response:
    """The whole system; with `?doctor=1` every promise is asked for its offenders too."""
    async with visit.context.database.connection() as connection:
        facts = await system.system_facts(connection)
        seen = now()
        sizes = await system.table_sizes(connection, limit=TABLES_SHOWN)
        processes = await system.process_figures(connection)
        schema = await schema_version(connection)
        diagnosis = await doctor.examine(connection) if visit.query("doctor") else None
    return page(
        "system.html",
        visit.caller,
        known=await shards_now(visit.context.database),
        facts=facts,
        sizes=sizes,
        processes=processes,
        schema=schema,
        diagnosis=diagnosis,
        version=__version__,
        zones=rules_version(),
        skew_s=(seen - facts.now).total_seconds(),
    )


async def parts(visit: Visit) -> str:
    """What an open page is told: who owns what."""
    visit.caller.demand("admin")
    return fragment("fleet.html", "shard_tables", visit.caller, known=await shards_now(visit.context.database))
