"""The page of a job and two of its tabs: statistics, and why it does not run."""

from __future__ import annotations

from starlette.responses import Response

from mainspring import wire
from mainspring.store import manifests
from mainspring.views import backfills as backfill_views
from mainspring.views import executions as execution_views
from mainspring.views import fires as fire_views
from mainspring.views import job_size, search, why_job
from mainspring.views import jobs as job_views
from mainspring.web import render
from mainspring.web.draw.charts import job_charts
from mainspring.web.endpoint import PageRequest
from mainspring.web.urls import link

FIRES_SHOWN = 10
EXECUTIONS_SHOWN = 25
BACKFILLS_SHOWN = 5
STATS_WINDOWS_H = (("Last hour", 1.0), ("24 hours", 24.0), ("7 days", 168.0), ("30 days", 720.0))
STATS_MAX_EXECUTIONS = 5000
"""Executions read for each window beside hourly totals; of a job that runs every second, more than an hour."""


async def job(request: PageRequest) -> Response:
    """GET /jobs/{ref}."""
    database, tenant = request.context.database, request.caller.tenant
    found = await job_views.get(database, request.ref, tenant=tenant)
    ref = str(found.job_id)
    cursor = request.query("cursor")
    fires = await fire_views.of_job(database, ref, tenant=tenant, count=FIRES_SHOWN)
    past = await execution_views.list_executions(
        database, tenant=tenant, job=ref, cursor=cursor or None, limit=EXECUTIONS_SHOWN
    )
    recent = await backfill_views.list_backfills(database, tenant=tenant, job=ref, limit=BACKFILLS_SHOWN)
    return render.page(
        "job.html",
        request.caller,
        job=found,
        fires=fires,
        executions=past.items,
        cursor=cursor,
        next_page=past.next_cursor and link(request.http.url.path, cursor=past.next_cursor),
        backfills=recent.items,
        size=await job_size.size(database, ref, tenant=tenant),
        charts=job_charts(past.items) if not cursor else None,
        manifest_owner=await manifest_owner(request, found),
    )


async def manifest_owner(request: PageRequest, job: wire.Job) -> str | None:
    """The owner that applied the job from a manifest, if one did."""
    key = ("Workflow" if job.spec.kind == "workflow" else "Job", job.name)
    async with request.context.database.connection() as connection:
        marks = await manifests.applied_marks(connection, tenant=request.caller.tenant, keys=[key])
    return marks[key].owner if key in marks else None


async def why_not(request: PageRequest) -> Response:
    """GET /jobs/{ref}/why."""
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, request.ref, tenant=tenant)
    checks = await why_job.why_not(database, str(job.job_id), tenant=tenant)
    stops = [check for check in checks if check.verdict == "stops"]
    return render.page("job_why.html", request.caller, job=job, checks=checks, stops=stops)


async def stats(request: PageRequest) -> Response:
    """GET /jobs/{ref}/stats."""
    database, tenant = request.context.database, request.caller.tenant
    job = await job_views.get(database, request.ref, tenant=tenant)
    ids, each = [job.job_id], STATS_MAX_EXECUTIONS
    rows = [
        (name, (await search.stats(database, ids, tenant=tenant, each=each, hours=hours))[job.job_id])
        for name, hours in STATS_WINDOWS_H
    ]
    return render.page("job_stats.html", request.caller, job=job, rows=rows)
