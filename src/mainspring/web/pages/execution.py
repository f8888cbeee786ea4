"""The page of an execution, and its output: the end first, what came before on demand, all of it as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from starlette.responses import HTMLResponse, Response, StreamingResponse

from mainspring.domain.execution import LIVE
from mainspring.views import executions as execution_views
from mainspring.views import logs as log_views
from mainspring.views import refs
from mainspring.web.access import Visit
from mainspring.web.draw import terminal_output
from mainspring.web.draw.timeline import timeline
from mainspring.web.render import HEADERS, now, page


async def execution(visit: Visit) -> Response:
    database, tenant = visit.context.database, visit.caller.tenant
    found = await execution_views.get(database, visit.ref, tenant=tenant)
    files = await visit.context.artifacts.listed(found.execution_id, tenant=tenant)
    before, place = visit.query("before"), visit.query("place")
    if place:
        logs, more = await log_views.read_logs(database, found.execution_id, tenant=tenant, place=place), True
    else:
        logs, more = await log_views.read_logs_before(
            database, found.execution_id, tenant=tenant, before=before or None
        )
    run_id = await visit.context.run_views.run_of_execution(found.execution_id, tenant=tenant)
    return page(
        "execution.html",
        visit.caller,
        e=found,
        run_id=run_id,
        files=files,
        steps=timeline(found, now()),
        logs=logs,
        more=more and bool(logs.chunks) and place != "0.-1",
        live=found.state in LIVE,
        range=bool(before or place),
    )


async def earlier(visit: Visit) -> Response:
    """Output before a place, for a page that shows what follows. The header says whether there is more before."""
    execution_id = await refs.execution_id(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    logs, more = await log_views.read_logs_before(
        visit.context.database, execution_id, tenant=visit.caller.tenant, before=visit.query("before") or None
    )
    attempt = logs.chunks[0].attempt if logs.chunks else 0
    headers = {**HEADERS, "X-More": "yes" if more else "no"}
    return HTMLResponse(str(terminal_output.render(logs.chunks, 0 if not more else attempt)), 200, headers)


async def download(visit: Visit) -> Response:
    """All output so far, as the program wrote it."""
    execution_id = await refs.execution_id(visit.context.database, visit.ref, tenant=visit.caller.tenant)
    await execution_views.get(visit.context.database, execution_id, tenant=visit.caller.tenant)
    name = f'attachment; filename="{execution_id}.txt"'
    headers = {**HEADERS, "Content-Disposition": name}
    return StreamingResponse(_all(visit, execution_id), 200, headers, media_type="text/plain; charset=utf-8")


async def _all(visit: Visit, execution_id: UUID) -> AsyncIterator[str]:
    place: str | None = None
    while True:
        logs = await log_views.read_logs(visit.context.database, execution_id, tenant=visit.caller.tenant, place=place)
        if not logs.chunks:
            return
        yield "".join(chunk.text for chunk in logs.chunks)
        place = logs.place
