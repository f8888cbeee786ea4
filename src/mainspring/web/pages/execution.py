"""The page of an execution and its log: the end first, earlier parts on demand, all of it as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from starlette.responses import HTMLResponse, Response, StreamingResponse

from mainspring import wire
from mainspring.domain.errors import NotFound
from mainspring.domain.execution import LIVE
from mainspring.domain.job import JobSpec
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import logs as log_views
from mainspring.views import refs, why_execution
from mainspring.web.draw import terminal_output
from mainspring.web.draw.timeline import timeline
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import HEADERS, fragment, now, page


async def execution(request: PageRequest) -> Response:
    """GET /executions/{ref}; `before` and `place` select a part of the log, `times` shows timestamps."""
    database, tenant = request.context.database, request.caller.tenant
    found = await execution_views.get(database, request.ref, tenant=tenant)
    files = await request.context.artifacts.listed(found.execution_id, tenant=tenant)
    before, place = request.query("before"), request.query("place")
    if place:
        size = log_views.TAIL_BYTES
        logs = await log_views.read_logs(database, found.execution_id, tenant=tenant, place=place, size=size)
        more = True
    else:
        logs, more = await log_views.read_logs_before(
            database, found.execution_id, tenant=tenant, before=before or None
        )
    run_id = await request.context.run_views.run_of_execution(found.execution_id, tenant=tenant)
    shown = await shown_with(request, found)
    return page(
        "execution.html",
        request.caller,
        **shown,
        run_id=run_id,
        files=files,
        logs=logs,
        more=more and bool(logs.chunks) and place != "0.-1",
        live=found.state in LIVE,
        range=bool(before or place),
        times=request.query("times") == "1",
    )


async def shown_with(request: PageRequest, found: wire.Execution) -> dict[str, Any]:
    """Return what both parts of the page take: the execution, its timeline, why it waits, and its definition."""
    database, tenant = request.context.database, request.caller.tenant
    reasons: list[wire.Reason] = []
    if found.state in ("waiting", "blocked", "queued"):
        reasons = (await why_execution.execution(database, found.execution_id, tenant=tenant)).reasons
    try:
        spec: JobSpec | None = await job_views.version_of(database, found.job_id, found.version, tenant=tenant)
    except NotFound:  # retention has deleted it
        spec = None
    trace = request.context.trace_url.replace("{trace_id}", found.execution_id.hex) if found.attempt else ""
    return {"e": found, "steps": timeline(found, now()), "reasons": reasons, "spec": spec, "trace": trace}


async def fragments(request: PageRequest, found: wire.Execution) -> str:
    """Return the parts of the page that change, for the stream."""
    values = await shown_with(request, found)
    parts = ("execution_head", "execution_details")
    return "".join(fragment("execution_parts.html", name, request.caller, **values) for name in parts)


async def earlier_log(request: PageRequest) -> Response:
    """GET /executions/{ref}/output: the log before `before`. The header X-More says whether there is more."""
    execution_id = await refs.execution_id(request.context.database, request.ref, tenant=request.caller.tenant)
    logs, more = await log_views.read_logs_before(
        request.context.database, execution_id, tenant=request.caller.tenant, before=request.query("before") or None
    )
    attempt = logs.chunks[0].attempt if logs.chunks else 0
    headers = {**HEADERS, "X-More": "yes" if more else "no"}
    html = terminal_output.render(logs.chunks, attempt if more else 0, zone=request.caller.zone, now=now())
    return HTMLResponse(str(html), 200, headers)


async def download_log(request: PageRequest) -> Response:
    """GET /executions/{ref}/output.txt: the whole log so far, unchanged."""
    execution_id = await refs.execution_id(request.context.database, request.ref, tenant=request.caller.tenant)
    await execution_views.get(request.context.database, execution_id, tenant=request.caller.tenant)
    name = f'attachment; filename="{execution_id}.txt"'
    headers = {**HEADERS, "Content-Disposition": name}
    return StreamingResponse(_whole_log(request, execution_id), 200, headers, media_type="text/plain; charset=utf-8")


async def _whole_log(request: PageRequest, execution_id: UUID) -> AsyncIterator[str]:
    place: str | None = None
    while True:
        logs = await log_views.read_logs(
            request.context.database, execution_id, tenant=request.caller.tenant, place=place
        )
        if not logs.chunks:
            return
        yield "".join(chunk.text for chunk in logs.chunks)
        place = logs.place
