"""The charts of a job: duration and start delay of its latest executions, live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.responses import HTMLResponse, Response

from mainspring import wire
from mainspring.views import executions as execution_views
from mainspring.views import jobs as job_views
from mainspring.views import refs
from mainspring.web.draw.charts import JobCharts, job_charts
from mainspring.web.endpoint import PageRequest
from mainspring.web.render import HEADERS, fragment, page

EXECUTIONS_SHOWN = 200
REFRESH_S = 3.0


async def chart(request: PageRequest) -> Response:
    """GET /jobs/{ref}/chart; with `part`, only the charts, for another page."""
    job = await job_views.get(request.context.database, request.ref, tenant=request.caller.tenant)
    charts = await _charts(request, str(job.job_id))
    if request.query("part"):
        return HTMLResponse(fragment("chart_parts.html", "charts", request.caller, charts=charts), 200, HEADERS)
    return page("job_chart.html", request.caller, job=job, found=charts)


async def watch(
    request: PageRequest, changes: AsyncIterator[list[wire.Execution]], message: Callable[..., str]
) -> AsyncIterator[str]:
    """Yield the charts again whenever they have changed."""
    job = await refs.job_row(request.context.database, request.query("job"), tenant=request.caller.tenant)
    sent, read_at = "", 0.0
    loop = asyncio.get_running_loop()
    async for changed in changes:
        # Under load the stream may have dropped changes of this job, so it is read again every REFRESH_S.
        if loop.time() - read_at < REFRESH_S and changed and not any(e.job_id == job.job_id for e in changed):
            continue
        read_at = loop.time()
        text = fragment("chart_parts.html", "charts", request.caller, charts=await _charts(request, str(job.job_id)))
        if text != sent:
            sent = text
            yield message(text)


async def _charts(request: PageRequest, job: str) -> JobCharts:
    listed = await execution_views.list_executions(
        request.context.database, tenant=request.caller.tenant, job=job, limit=EXECUTIONS_SHOWN
    )
    return job_charts(listed.items)
