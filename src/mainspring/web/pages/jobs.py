"""The list of jobs, with schedule, latest executions and success rate."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from uuid import UUID

from starlette.responses import Response

from mainspring import wire
from mainspring.domain.errors import Invalid
from mainspring.domain.filter import JOB_FIELDS, spell
from mainspring.store.search import JobStats
from mainspring.views import jobs as job_views
from mainspring.views import search
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.input_error import InputError, locate_error
from mainspring.web.render import page
from mainspring.web.urls import link

JOBS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of jobs with their statistics of the last 24 hours, or the error in the filter."""

    page: wire.Page[wire.Job]
    stats: dict[UUID, JobStats] = field(default_factory=dict)
    error: InputError | None = None


async def jobs(request: PageRequest) -> Response:
    """GET /jobs."""
    text, cursor = request.query("q") or spell(name=request.query("prefix")), request.query("cursor")
    found = await find_jobs(request)
    next_page = found.page.next_cursor and link("/jobs", q=text, cursor=found.page.next_cursor)
    return page(
        "jobs.html",
        request.caller,
        status=422 if found.error else 200,
        jobs=found.page.items,
        stats=found.stats,
        text=text,
        error=found.error,
        fields=JOB_FIELDS,
        cursor=cursor,
        next_page=next_page,
        back=link("/jobs", q=text, cursor=cursor),
        bulk=link("/jobs:bulk", q=text),
        command=shlex.join(["mainspring", "jobs", "list", *([text] if text else [])]),
        stream=link("/ui/stream", view="jobs", q=text, cursor=cursor),
    )


async def find_jobs(request: PageRequest) -> JobList:
    """Return the jobs that match the query of the address."""
    database, tenant, cursor = request.context.database, request.caller.tenant, request.query("cursor") or None
    text = request.query("q") or spell(name=request.query("prefix"))
    try:
        if text:
            found = await search.jobs(database, text, tenant=tenant, cursor=cursor, limit=JOBS_SHOWN)
        else:
            found = await job_views.list_jobs(database, tenant=tenant, cursor=cursor, limit=JOBS_SHOWN)
    except Invalid as error:
        return JobList(wire.Page(items=[]), error=locate_error(error, text, ""))
    ids = [job.job_id for job in found.items]
    return JobList(found, await search.stats(database, ids, tenant=tenant))
