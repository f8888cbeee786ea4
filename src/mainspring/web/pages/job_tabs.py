"""Why a job does not run, and how its executions went: two tabs of its page."""

from __future__ import annotations

from starlette.responses import Response

from mainspring.views import jobs as job_views
from mainspring.views import search, why_job
from mainspring.web import render
from mainspring.web.access import Visit

WINDOWS = (("the last hour", 1.0), ("24 hours", 24.0), ("7 days", 168.0), ("30 days", 720.0))
LOOKED = 5000
"""Executions that tell how a job went; of one that runs every second, that is more than an hour."""


async def why_not(visit: Visit) -> Response:
    """GET /jobs/{ref}/why."""
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, visit.ref, tenant=tenant)
    found = await why_job.why_not(database, str(job.job_id), tenant=tenant)
    stops = [check for check in found if check.verdict == "stops"]
    return render.page("why_not.html", visit.caller, job=job, checks=found, stops=stops)


async def stats(visit: Visit) -> Response:
    """GET /jobs/{ref}/stats."""
    database, tenant = visit.context.database, visit.caller.tenant
    job = await job_views.get(database, visit.ref, tenant=tenant)
    rows = [
        (name, (await search.stats(database, [job.job_id], tenant=tenant, each=LOOKED, hours=hours))[job.job_id])
        for name, hours in WINDOWS
    ]
    return render.page("stats.html", visit.caller, job=job, rows=rows, looked=LOOKED)
